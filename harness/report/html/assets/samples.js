"use strict";
(() => {
  const form = document.querySelector(".filters");
  const selects = [...form.querySelectorAll("select")];
  const search = form.querySelector("input");
  const cards = [...document.querySelectorAll(".card")];
  const shown = document.getElementById("shown");

  function matches(answer) {
    const wanted = search.value.trim();
    if (wanted && answer.dataset.sample !== wanted) return false;
    return selects.every((one) => !one.value || answer.dataset[one.name].split(" ").includes(one.value));
  }

  function apply() {
    let count = 0;
    for (const card of cards) {
      let any = false;
      for (const answer of card.querySelectorAll(".answer")) {
        const fits = matches(answer);
        answer.hidden = !fits;
        any ||= fits;
        count += fits;
      }
      card.hidden = !any;
    }
    shown.textContent = count.toLocaleString("en");
  }

  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  apply();
  // A link to a sample opens it.
  const open = () => {
    const found = document.getElementById(location.hash.slice(1));
    if (found?.matches("details")) found.open = true;
  };
  addEventListener("hashchange", open);
  open();
})();
