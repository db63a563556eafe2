"""Text in and out of a model: tokens, chat prompts, and the choice of the next token.

vocab             Vocab: token texts, kinds and special ids as a GGUF file states them
pretokenize       how a BPE vocabulary cuts text into words before merging
pre_rules         which BPE vocabulary does it by which rule
merging           the merge loop that both BPE kinds share
bpe               BPE: words to tokens by merge rank
spm               SentencePiece BPE: characters to tokens by score
wordpiece         WordPiece: words to the longest tokens that make them up
unigram           unigram SentencePiece: the tokens whose scores sum up highest
fallback          what stands in for a tokenizer that is not known
kinds             which of these a GGUF file asks for, and what is wrong with the file
tokenizer         Tokenizer and StreamDecoder: text to ids and back
template_places   where in a chat template something is: row and column
template_limits   what a chat template may do and how much of it
chat_template     messages to one prompt by a model's own template
prompt            a prompt as tokens, raw or as a chat message
sampling          Sampler: logits to the next token
"""
