import pytest

from app.views.options.values import text_of, value_of
from engine.core.options import DEFAULTS, OPTION_SPECS, SPEC_BY_FIELD, LayerRule, TensorOverride
from engine.errors import PlacementError

TYPED = [
    spec.field for spec in OPTION_SPECS if spec.kind is not bool and spec.item is not TensorOverride
]


@pytest.mark.parametrize("field", TYPED)
def test_a_default_stands_in_its_field_and_is_read_back(field):
    default = getattr(DEFAULTS, field)

    assert value_of(field, text_of(field, default)) == default


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("n_gpu_layers", -1, "all"),
        ("n_gpu_layers", 12, "12"),
        ("main_gpu", -1, "none"),
        ("n_ctx", 0, "model's"),
        ("n_threads", 0, "auto"),
        ("seed", -1, "random"),
        ("tensor_split", (), "auto"),
        ("tensor_split", (3.0, 1.5), "3,1.5"),
        ("devices", None, "auto"),
        ("devices", (), "none"),
        ("devices", ("GPU0", "GPU1"), "GPU0,GPU1"),
        ("temperature", 0.8, "0.8"),
        ("layer_rule", LayerRule.OUTPUT_LAST, "output-last"),
    ],
)
def test_a_value_and_its_text_are_two_forms_of_the_same(field, value, text):
    assert text_of(field, value) == text
    assert value_of(field, text) == value


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("n_ctx", " 8 192 ", 8192),
        ("n_ctx", "8\u202f192", 8192),
        ("n_gpu_layers", "auto", -1),
        ("n_gpu_layers", "ALL", -1),
        ("tensor_split", "3/1", (3.0, 1.0)),
        ("tensor_split", "", ()),
        ("devices", "", None),
    ],
)
def test_what_people_type_besides_is_read_too(field, text, value):
    assert value_of(field, text) == value


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("n_batch", "0", "It must be at least 1."),
        ("n_batch", "", "It must be a whole number."),
        ("n_cpu_moe", "900", "It must be at most 512."),
        ("n_gpu_layers", "many", "It must be a whole number, all or auto."),
        ("top_p", "1.5", "It must be at most 1."),
        ("tensor_split", "3,x", "It must be shares from 0 to 1e+30 with commas between them."),
        ("tensor_split", "3,-1", "It must be shares from 0 to 1e+30 with commas between them."),
    ],
)
def test_what_is_out_of_bounds_is_refused_with_what_is_allowed(field, text, sentence):
    with pytest.raises(PlacementError) as caught:
        value_of(field, text)

    assert caught.value.sentence == sentence


def test_every_bounded_number_refuses_what_is_just_outside():
    for spec in OPTION_SPECS:
        for bound, step in ((spec.low, -1), (spec.high, 1)):
            if bound is not None:
                with pytest.raises(PlacementError):
                    value_of(spec.field, f"{bound + step:.0f}")
    assert SPEC_BY_FIELD["n_ubatch"].low == 1
