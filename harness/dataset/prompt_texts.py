"""What is known of prompts that are sent as text."""

from datetime import date
from typing import Any

import msgspec


class PromptTexts(msgspec.Struct, frozen=True, kw_only=True):
    """How prompts were sent as text. Each was proved to encode to the ids of its row."""

    prompts: int
    """all of the dataset that are used"""
    tokenizer: str = ""
    """path of its file, or `o200k_harmony`, which is built in"""
    tokenizer_sha256: str = ""
    messages: bool
    """whether a request carries messages, which the server's chat template renders; if not, the complete
    prompt"""
    put_before: str = ""
    """what the server's tokenizer puts before a text: the prompts begin with it, their texts do not"""
    own_template: bool | None = None
    """whether the messages were rendered with the template in the model's folder, to the same prompts;
    `false`: it is not there, and they were made by the rules of its format; `null` without messages"""
    fields: dict[str, Any] = {}
    """of every request, beside the messages"""
    today: str = ""
    """the date in the prompts, where the template takes that of the server's clock"""

    def __str__(self) -> str:
        form = "messages for the server's chat template" if self.messages else "the detokenized ids"
        by = {True: " (the model's own gives the same)", False: " (by the rules of its format)", None: ""}
        before = f", without the {self.put_before} that servers put before it" if self.put_before else ""
        with_fields = "".join(
            f", {name} {msgspec.json.encode(self.fields[name]).decode()}" for name in self.fields
        )
        counts = f"{self.prompts} of {self.prompts} encode to the same ids"
        return f"{form}{by[self.own_template]}{before}{with_fields}; {counts}"

    @property
    def deviations(self) -> tuple[str, ...]:
        """What makes the prompts that a server renders other ones than the dataset's, as far as is known."""
        if not self.today or self.today == date.today().isoformat():
            return ()
        return (
            "--api chat: the server writes its own date into each prompt, where the dataset has "
            f"{self.today} (vLLM takes it from VLLM_SYSTEM_START_DATE; --api completions-text sends it)",
        )
