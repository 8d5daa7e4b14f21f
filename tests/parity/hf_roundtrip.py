#!/usr/bin/env python3
"""Checks that Ridge and Hugging Face's transformers read each other's models.

    tests/parity/hf_roundtrip.py --ridge build/bin/ridge

Out: weights of ridge train, ridge export, and the logits of LlamaForCausalLM against those of
ridge eval. In: weights of transformers' save_pretrained, whole, in shards and in bf16 and fp16,
read by ridge eval --init-from. Exits with 1 if any logits are further apart than 1e-4."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1e-4

# Command lines of ridge train.
TRAINED = {
    "default": [],
    "one key head, tied": ["--n-kv-heads=1", "--tie-embeddings"],
    "odd sizes": ["--vocab-size=977", "--hidden-dim=222", "--n-layers=3", "--n-heads=3",
                  "--n-kv-heads=3", "--intermediate-dim=331", "--seq-len=67", "--batch-size=3",
                  "--rope-theta=500000", "--norm-eps=1e-5"],
}
MADE = dict(vocab_size=311, hidden_size=96, intermediate_size=200, num_hidden_layers=3,
            num_attention_heads=6, num_key_value_heads=2, rms_norm_eps=1e-5, initializer_range=0.1)


def run(*command):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")


def difference(ridge, source, model, folder, sizes=()):
    """Of ridge eval's logits of the first batch from transformers' on the same tokens."""
    path = folder / "logits.safetensors"
    run(ridge, "eval", *source, *sizes, "--eval-batches=1", "--logits", path)
    record = load_file(path)
    with torch.no_grad():
        logits = model(record["tokens"].long()).logits
    return (logits.float() - record["logits"]).abs().max().item(), logits.abs().max().item()


def exported(ridge, flags, folder):
    run(ridge, "train", *flags, "--learning-rate=1e-2", "--num-steps=3", "--save-every=3",
        "--output-dir", folder)
    checkpoint = folder / "checkpoint.safetensors"
    run(ridge, "export", "--checkpoint", checkpoint, "--hf", folder / "hf")
    model, report = LlamaForCausalLM.from_pretrained(
        folder / "hf", output_loading_info=True, attn_implementation="eager")
    complaints = {k: v for k, v in report.items() if v}
    assert not complaints, complaints
    return difference(ridge, ["--checkpoint", checkpoint], model.eval(), folder)


def imported(ridge, folder, dtype=torch.float32, shard="1GB", **config):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**(MADE | config))).to(dtype)
    model.save_pretrained(folder / "hf", max_shard_size=shard)
    assert (folder / "hf" / "model.safetensors").exists() == (shard == "1GB")
    model = LlamaForCausalLM.from_pretrained(
        folder / "hf", dtype=torch.float32, attn_implementation="eager")
    return difference(ridge, ["--init-from", folder / "hf"], model.eval(), folder,
                      ["--batch-size=2", "--seq-len=50"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ridge", default=str(ROOT / "build/bin/ridge"))
    ridge = parser.parse_args().ridge
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    cases = {f"out: {name}": lambda folder, flags=flags: exported(ridge, flags, folder)
             for name, flags in TRAINED.items()}
    cases |= {
        "in: float32": lambda folder: imported(ridge, folder),
        "in: float32, in shards": lambda folder: imported(ridge, folder, shard="100KB"),
        "in: bfloat16": lambda folder: imported(ridge, folder, torch.bfloat16),
        "in: float16": lambda folder: imported(ridge, folder, torch.float16),
        "in: tied, theta 1e6": lambda folder: imported(
            ridge, folder, tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    }
    failed = False
    print("| Model | Largest difference of logits | Largest logit |")
    print("|---|---:|---:|")
    for name, case in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            apart, largest = case(Path(folder))
        failed |= not apart <= LIMIT
        print(f"| {name} | {apart:.1e} | {largest:.2f} |", flush=True)
    print(f"\nLimit {LIMIT:.0e}; transformers {transformers.__version__}, "
          f"PyTorch {torch.__version__}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
