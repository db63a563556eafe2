"""Item models over what the engine said.

tensors  TensorModel: the tensors of a file, for models that cannot be planned
"""
