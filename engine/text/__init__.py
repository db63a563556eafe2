"""Text in and out of a model: tokens, chat prompts, and the choice of the next token.

vocab             Vocab: token texts, kinds and special ids as a GGUF file states them
pretokenize       how each BPE vocabulary cuts text into words before merging
merging           the merge loop that both BPE kinds share
bpe               byte-level BPE: words to tokens by merge rank
spm               SentencePiece BPE: characters to tokens by score
tokenizer         Tokenizer and StreamDecoder: text to ids and back
template_limits   what a chat template may do and how much of it
chat_template     messages to one prompt by a model's own template
sampling          Sampler: logits to the next token
"""
