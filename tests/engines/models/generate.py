"""What transformers' ``generate`` answers: generate.py < JOBS > ANSWERS

JOBS is a JSON list of objects: ``model`` (its folder), ``prompts`` (lists of ids), ``options`` of generate,
and ``seed``. With a seed each prompt is generated alone after torch.manual_seed; without one all in one
batch, padded on the left.
"""

import functools
import json
import sys


def main() -> None:
    """Print the new ids of each prompt of each job."""
    json.dump([answers(**job) for job in json.load(sys.stdin)], sys.stdout)


@functools.cache
def loaded(path):
    """A model."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path).eval()


def answers(model, prompts, options, seed):
    """The new ids of each prompt."""
    import torch

    model, made = loaded(model), []
    for batch in [prompts] if seed is None else [[prompt] for prompt in prompts]:
        longest = max(map(len, batch))
        ids = torch.tensor([[2] * (longest - len(prompt)) + prompt for prompt in batch])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in batch])
        if seed is not None:
            torch.manual_seed(seed)
        made += model.generate(input_ids=ids, attention_mask=mask, **options)[:, longest:].tolist()
    return made


if __name__ == "__main__":
    main()
