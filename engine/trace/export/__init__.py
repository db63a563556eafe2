"""A trace as a file for other programs: one file a format.

meta      TraceMeta: the names that spans refer to by number
layout    which span goes on which track, which flow joins which spans; shared by all formats
labels    name and arguments of a slice; shared by all formats
atomic    a file that is there whole or not at all
wire      protobuf's wire format, the part that is needed to write
perfetto  Perfetto's own protobuf (default): nanoseconds, descriptions, smallest file
chrome    Chrome trace event JSON: read by most viewers
"""
