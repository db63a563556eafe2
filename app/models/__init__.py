"""Item models over what the engine said, and facts that several panes share.

tensors           TensorModel: the tensors of a file, for models that cannot be planned
splits_model      SplitsModel: the splits of a plan, alike layers folded, times after a run
splits_rows       pure: order, folding and sorting of its rows
cells             roles of cells, marks and alignment that tables share
device_entries    pure: what the devices' table lists, and how far each got
device_words      pure: a device's facts, and how it got here, in words
devices_model     DevicesModel: that table
links_model       LinksModel: the links between devices that a run used
load_report_model  LoadReportModel: every path that was tried to load backends
op_matrix_model   OpMatrixModel: what checking operations found
candidates_model  CandidatesModel: what each device answered
alike             pure: which splits are alike
split_times       pure: how long each split of a plan took
expert_words      pure: copies of used experts in words
plan_words        pure: facts of a plan in words
dock_title        DockTitle: what a pane asks its dock to show
"""
