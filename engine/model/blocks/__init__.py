"""Parts that graphs share, in llama.cpp's node order and names. Source: ARCH.md 1.

weight_list    what an architecture asks of a file, written down
graph_context  a graph under construction: its weights, inputs, names
inputs         token embeddings, positions, the rows that give logits
norms          normalisation with its weight
qkv            queries, keys and values, rotated
attention      attention over the cache and its output projection
latent         attention whose keys and values are unpacked from short rows (MLA)
cache_rows     what a graph writes into the cache and reads from it
ffn            feed-forward, with a gate or without
moe            feed-forward of experts
nextn          weights of layers that guess further tokens, which nobody loads
layer_embeddings  embeddings that each layer has for itself
recurrent      states that layers carry on: begun, picked, written back
mamba          selective state spaces of both kinds
delta_net      linear attention by a gated delta rule
encoder        attention of a text over itself
pooling        the embeddings of a text's tokens made one
decoder        embeddings, layers, logits: the frame; the half of a layer that feeds forward
head           the last norm and the logits
"""
