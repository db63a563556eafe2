"""The GGUF file format, version 3, little-endian: a hardened reader and a small writer.

keys      ValueType, and the metadata keys that more than one package reads
limits    every cap with its reason
faults    Source: how a fault of a file is told
strings   StringArray: a string array whose items are decoded when asked for
cursor    Cursor: reads that never leave the file
huge_pages  bring_in: a mapped file in memory before it is needed
copied_parts  CopiedParts: what was copied out of a mapped file is let go
reader    open_gguf, GgufFile, TensorInfo, TruncatedTensor
writer    write_gguf, header_bytes
"""
