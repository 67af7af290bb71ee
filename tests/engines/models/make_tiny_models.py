"""Writes tiny models with random weights, always the same: make_tiny_models.py (KIND VOCABULARY DIR)...

KIND is ``deepseek`` or ``gpt-oss``: transformers' classes of DeepSeek-R1 and gpt-oss with all that makes them
special (latent attention, groups of experts, a dense first layer; sliding windows, sinks). The weights are
large enough that float32 has no ties. Runs in an environment with torch and transformers.
"""

import sys

END = 1


def write(kind: str, vocabulary: int, directory: str) -> None:
    """Write config.json, generation_config.json and model.safetensors."""
    import torch

    torch.manual_seed(0)
    model = {"deepseek": _deepseek, "gpt-oss": _gpt_oss}[kind](
        vocab_size=vocabulary,
        hidden_size=64 if vocabulary < 1000 else 16,
        num_attention_heads=4,
        max_position_embeddings=4096,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=END,
        pad_token_id=2,
    )
    model.generation_config.eos_token_id = [END]
    model.save_pretrained(directory)


def _deepseek(**common):
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    config = DeepseekV3Config(
        intermediate_size=128,
        moe_intermediate_size=32,
        num_hidden_layers=3,
        first_k_dense_replace=1,
        n_routed_experts=8,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        num_key_value_heads=4,
        kv_lora_rank=32,
        q_lora_rank=48,
        qk_rope_head_dim=16,
        qk_nope_head_dim=16,
        v_head_dim=16,
        num_mtp_layers=0,
        **common,
    )
    return DeepseekV3ForCausalLM(config)


def _gpt_oss(**common):
    from transformers import GptOssConfig, GptOssForCausalLM

    config = GptOssConfig(
        intermediate_size=64,
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=16,
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        **common,
    )
    return GptOssForCausalLM(config)


if __name__ == "__main__":
    for kind, vocabulary, directory in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3], strict=True):
        write(kind, int(vocabulary), directory)
