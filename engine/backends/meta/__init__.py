"""Several devices as one (-sm tensor): each has a share of every layer.

views    parts of views of tensors that are shared
decide   how a node is shared, one rule an operation
spread   a split -> what each member computes and what they exchange; pure
check    the same before anything is loaded, and whether members have the kernels
buffer   whole tensors outside, each member's parts inside
bind     steps -> the members' split graphs
events   one event for all of it
backend  the stream
device   join_devices: the device
"""
