"""What each language model is, in a line."""

TOLD: dict[str, str] = {
    "bag": "how often each token occurs, whatever came before",
    "ngram": "counts of n tokens in a row, smoothed (Kneser-Ney)",
    "bigram": "a small network that sees the last token",
    "rnn": "a plain recurrent network",
    "gru": "a recurrent network with two gates",
    "lstm": "a recurrent network with gates and a cell",
    "rnn-attention": "a recurrent network that looks back at its states",
    "gpt": "a transformer",
    "local": "gpt --attention local: each layer sees the last few tokens",
    "linear": "gpt --attention linear: attention with a state of constant size",
    "synthesizer": "gpt --attention dense: looks are learnt without comparing tokens",
}
