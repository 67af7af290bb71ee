"""How far each answer token is from transformers' greedy choice: greedy_gaps.py MODEL_DIR < ANSWERS > GAPS

ANSWERS is a JSON list of [prompt ids, output ids]; GAPS has for every output token the logit of the
likeliest token minus the logit of the token itself, 0 where they are the same. Logits are compared and
not tokens, since in bfloat16 the two likeliest are now and then equal to the last bit.
Runs in the SGLang environment.
"""

import json
import sys


def main(model_path: str) -> None:
    """One pass over prompt and output together for each answer; no cache that could be wrong."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.bfloat16).eval()
    gaps = []
    with torch.inference_mode():
        for prompt, output in json.load(sys.stdin):
            logits = model(torch.tensor([prompt + output[:-1]]), use_cache=False).logits[0, len(prompt) - 1 :]
            chosen = logits.gather(-1, torch.tensor(output)[:, None])[:, 0]
            gaps.append((logits.amax(-1).float() - chosen.float()).tolist())
    json.dump(gaps, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
