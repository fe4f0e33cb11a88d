# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Train a dialogue model on one domain after another (IDA's section on dialogue), and score its replies by BLEU-2.

The model is a GRU encoder-decoder with attention and a memory on both sides. With no arguments the script runs offline,
on a few sentences. The data is a folder with a file of `text` and `text_pair` (the reply) for each domain.

    python examples/train_dialogue.py
    python examples/train_dialogue.py --data dialogues --domains cornell ubuntu --strategy f+m+v \\
        --strategy_kwargs '{"slots": 500}' --hidden_size 1024 --memory_slots 500 --embedding_size 50 \\
        --vectors glove.6B.50d.txt --num_train_epochs 5 --per_device_train_batch_size 64
"""

from dataclasses import dataclass, field

import torch
from transformers import HfArgumentParser, set_seed

from hf_memaug import (
    ContinualTrainer,
    ContinualTrainingArguments,
    DomainDataset,
    MemoryRNNConfig,
    MemoryRNNForConditionalGeneration,
    load_domains,
)
from hf_memaug.data import read_word_vectors, split_domains, word_tokenizer
from hf_memaug.evaluation import bleu

FILMS = ("where is the captain", "the captain is on the ship"), ("who took the money", "my brother took the money")
HELP = ("where is the log", "the log is in the home folder"), ("who owns the file", "root owns the file")


@dataclass
class ScriptArguments:
    data: str | None = field(default=None, metadata={"help": "Folder with a file of each domain; examples if unset."})
    hidden_size: int = field(default=32, metadata={"help": "Cells of the GRU."})
    embedding_size: int = field(default=16, metadata={"help": "Width of the word vectors."})
    memory_slots: int = field(default=16, metadata={"help": "Slots of the first memory."})
    vectors: str | None = field(default=None, metadata={"help": "Word vectors as text, such as GloVe's."})
    max_words: int = field(default=20000, metadata={"help": "The most frequent words that are known."})
    max_new_tokens: int = field(default=20, metadata={"help": "Longest reply."})


def toy_rows() -> DomainDataset:
    pairs = [(*pair, domain) for domain, of in (("films", FILMS), ("help", HELP)) for pair in of * 8]
    text, reply, domain = zip(*pairs, strict=True)
    return DomainDataset({"text": text, "text_pair": reply, "domain": domain})


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, ContinualTrainingArguments), description=__doc__)
    parser.set_defaults(
        output_dir="runs/dialogue",
        strategy="f+m+v",
        strategy_kwargs={"slots": 16},
        learning_rate=1e-2,
        num_train_epochs=15,
        per_device_train_batch_size=8,
        lr_scheduler_type="constant",
        save_strategy="no",
        report_to=[],
    )
    script, args = parser.parse_args_into_dataclasses()

    # 1. Data: replies are the second text of a row. The tokenizer knows the words of the first domain.
    if script.data:
        parts = split_domains(load_domains(script.data, text_pair="text_pair", label=None))
        train = {name: part.inside for name, part in parts.items()}
        test = {name: part.out for name, part in parts.items()}
    else:
        train = test = toy_rows().by_domain()
    args.domains = args.domains or list(train)
    first = train[args.domains[0]]
    tokenizer = word_tokenizer([*first["text"], *first["text_pair"]], max_words=script.max_words, end_of_text=True)

    # 2. Model.
    set_seed(args.seed)
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    model = MemoryRNNForConditionalGeneration(
        MemoryRNNConfig(
            vocab_size=len(tokenizer),
            cell="gru",
            hidden_size=script.hidden_size,
            embedding_size=script.embedding_size,
            memory_slots=[script.memory_slots],
            decoder_start_token_id=tokenizer.bos_token_id,
            **special,
        )
    )
    if script.vectors:
        args.strategy_kwargs = {**(args.strategy_kwargs or {}), "word_vectors": script.vectors}
        words = tokenizer.get_vocab()
        with torch.no_grad():
            for word, vector in read_word_vectors(script.vectors, words).items():
                model.get_input_embeddings().weight[words[word]] = vector

    # 3. Train on each domain in turn; memory and vocabulary grow before the second.
    trainer = ContinualTrainer(model, args, train_dataset=train, test_dataset=test, processing_class=tokenizer)
    trainer.train()
    trainer.save_model()

    # 4. Reply to the test rows.
    model, device = trainer.model.eval(), trainer.model.device
    for domain in args.domains:
        texts, given = test[domain]["text"], test[domain]["text_pair"]
        replies = []
        for start in range(0, len(texts), 64):
            batch = tokenizer(list(texts[start : start + 64]), padding=True, return_tensors="pt").to(device)
            said = model.generate(**batch, max_new_tokens=script.max_new_tokens, do_sample=False)
            replies += tokenizer.batch_decode(said, skip_special_tokens=True)
        score = 100 * bleu(replies, [reply.lower() for reply in given])
        print(f"{domain}: BLEU-2 {score:.1f}, such as {texts[0]!r} -> {replies[0]!r}")


if __name__ == "__main__":
    main()
