"""Item models over what the engine said, and facts that several panes share.

tensors           TensorModel: the tensors of a file, for models that cannot be planned
splits_model      SplitsModel: the splits of a plan, alike layers folded, times after a run
splits_rows       pure: order, folding and sorting of its rows
candidates_model  CandidatesModel: what each device answered
alike             pure: which splits are alike
split_times       pure: how long each split of a plan took
expert_words      pure: copies of used experts in words
plan_words        pure: facts of a plan in words
dock_title        DockTitle: what a pane asks its dock to show
"""
