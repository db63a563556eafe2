"""Single operations checked on devices against a reference: `python -m engine ops`.

cases                what a case is: an operation with parameters, types, shapes, strides
built_in             cases of every operation that graphs of the architectures use
built_in_products    the same for products and attention, type by type
words                a case in words
inputs               the bytes of its sources: any numbers, always the same
reference            every operation in plain numpy
reference_recurrent  the same for operations that carry a state
expect               what the result of a case has to be
judge                how far a result may be from it
prepared             a case laid out on a device
stream               one device of this process
apart                one device of a process that may end
child                that process
subjects             which devices are checked, and where
check                all cases on all devices
"""
