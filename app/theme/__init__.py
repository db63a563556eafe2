"""How everything looks: one colour table, one set of sizes, one way to write a number.

colours       Palette, DeviceColours, LIGHT, DARK, device_style: the only place with colours
text          bytes, times, counts and rates as words
fonts         the system's fonts in the sizes of the design
paint         hatch, badges, elision: what painters share
qss           the style sheet, made from a palette
icons         one-colour SVG icons, tinted from a palette
theme         Theme: the palette in use, following the system or forced
switch        Switch: a check box drawn as a switch
segment       Segment: exclusive buttons that share borders
choice_box    ChoiceBox: a combo box with the design's arrow
elided_label  ElidedLabel: a line that ends in an ellipsis where it does not fit
wrapped_label  WrappedLabel: lines that are never cut
whole_lines   WholeLines: a text field that shows no half of a line
job_row       JobRow: a job's name and count
"""
