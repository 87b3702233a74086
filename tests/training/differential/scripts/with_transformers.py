# SPDX-License-Identifier: Apache-2.0
"""Trains with the Trainer of Hugging Face: a small model, one checkpoint, evaluation."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import transformers
from torch.utils.data import Dataset

warnings.filterwarnings("ignore")


class Words(Dataset[Any]):
    """Random sentences."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        ids = torch.arange(8) % (index % 5 + 2)
        return {"input_ids": ids, "labels": ids}


transformers.set_seed(0)
model = transformers.GPT2LMHeadModel(
    transformers.GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1)
)
arguments = transformers.TrainingArguments(
    output_dir="out",
    num_train_epochs=2,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=8,
    gradient_accumulation_steps=2,
    eval_strategy="epoch",
    save_strategy="epoch",
    report_to=[],
    disable_tqdm=True,
    logging_strategy="no",
    use_cpu=True,
)
trainer = transformers.Trainer(
    model=model, args=arguments, train_dataset=Words(), eval_dataset=Words()
)
trainer.train()
print(trainer.state.global_step, f"{sum(float(p.sum()) for p in model.parameters()):.6f}")
