import numpy as np

from app.models.alike import Fold, alike_ids, folds, split_kinds
from tests.app.models import paper_run


def test_layers_that_repeat_the_one_before_are_one_fold():
    table = paper_run.plans().prompt

    assert folds(table, split_kinds(table)) == (Fold(13, 320, 11),)


def test_every_folded_split_is_like_the_one_a_period_before():
    kinds = split_kinds(paper_run.plans().prompt)

    assert np.array_equal(kinds[13:320], kinds[2:309])


def test_a_plan_of_few_splits_has_no_fold():
    table = paper_run.plans().token

    assert len(table.splits) == 2
    assert folds(table, split_kinds(table)) == ()


def test_the_same_split_is_found_in_every_layer_that_has_it():
    table = paper_run.plans().prompt
    kinds = split_kinds(table)

    names = {table.split_name(int(i)).partition("-")[0] for i in alike_ids(kinds, 99)}

    assert names == {"ffn_up"}
    assert len(alike_ids(kinds, 99)) == 29
