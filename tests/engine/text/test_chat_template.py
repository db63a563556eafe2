import datetime as dt

import pytest
from jinja2 import Environment

from engine.errors import TextError
from engine.text.chat_template import ChatMessage, has_template, render_chat, template_of
from engine.text.template_limits import TemplateLimits

MESSAGES = (ChatMessage("user", "Hi"), ChatMessage("assistant", "Yes?"), ChatMessage("user", " é "))

CHATML = """\
{%- if tools %}
    {{- 'Tools: ' + tools | tojson }}
{%- endif %}
{%- set ns = namespace(last='') %}
{% for message in messages %}
    {% if loop.first and message['role'] != 'system' %}
{{ '<|im_start|>system\\n<|im_end|>\\n' }}
    {% endif %}
{{ '<|im_start|>' + message.role + '\\n' ~ message['content'] | trim + '<|im_end|>' }}
    {% set ns.last = message.content.split(' ')[-1] %}
{% endfor %}
{%- if add_generation_prompt and messages[-1].role == 'user' %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
{{- ns.last ~ messages[:2] | length ~ (messages | map(attribute='role') | join(',')) }}
"""


def render(template, **options):
    return render_chat(template, MESSAGES, add_generation_prompt=True, **options)


def refusal(template, **options):
    with pytest.raises(TextError) as caught:
        render(template, **options)
    return caught.value


def test_a_prompt_is_what_plain_jinja_renders():
    plain = Environment(trim_blocks=True, lstrip_blocks=True).from_string(CHATML)
    messages = [{"role": message.role, "content": message.content} for message in MESSAGES]

    assert render(CHATML) == plain.render(messages=messages, add_generation_prompt=True)


def test_tokens_tools_and_time_reach_the_template():
    template = "{{ bos_token }}{{ tools | tojson }}{{ strftime_now('%Y-%m-%d') }}{{ eos_token }}"

    prompt = render(
        template,
        bos_token="<s>",
        eos_token="</s>",
        tools=[{"name": "é<"}],
        now=dt.datetime(2024, 7, 26, tzinfo=dt.UTC),
    )

    assert prompt == '<s>[{"name": "é<"}]2024-07-26</s>'


def test_whole_values_may_be_formatted_into_a_text():
    template = "{{ '<{}|{name}|{{}}>'.format('a', 1, name='é') }}{{ '{1}{0}'.format(1, 2) }}"

    assert render(template) == "<a|é|{}>21"


def test_generation_blocks_and_loop_controls_are_understood():
    template = (
        "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    )

    assert render(template) == "Hi"


def test_a_model_without_a_template_says_so():
    assert has_template({"tokenizer.chat_template": "x"})
    assert not has_template({})
    with pytest.raises(TextError, match="has no chat template"):
        template_of({})


def test_what_a_template_refuses_is_passed_on():
    error = refusal("{{ raise_exception('Roles must alternate') }}")

    assert error.title == "The model's chat template does not take these messages."
    assert error.sentence == "It says: Roles must alternate."


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("a\nb\n{% if %}", "Line 3, column 7: Expected an expression"),
        ("a\n\n{{ nothing.x }}", "Line 3, column 4: 'nothing' is undefined."),
        ("é {{ 1 }}{{ nothing.x }}", "Line 1, column 13: 'nothing' is undefined."),
        ("\n{{ 'a' | no_such_filter }}", "Line 2, column 4: No filter named 'no_such_filter'"),
        ("{% set a = 1 %}\n\n\n{{ 'a' + a }}", "Line 4, column 10: can only concatenate str"),
        ("{% include 'other' %}", "Line 1, column 1: no loader"),
        (
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "Line 1, column 19: it calls itself without end.",
        ),
        ("x\r\n  {%- for m in nothing.x %}{% endfor %}", "Line 2, column 16: 'nothing' is"),
        ("{% if 1 and\n  nothing.x %}{% endif %}", "Line 2, column 3: 'nothing' is undefined."),
        ("\n {{ 'a' & 'b' }}", "Line 2, column 9: unexpected char '&'"),
        ("{{ (1 }}", "Line 1, column 7: unexpected '}', expected ')'."),
        ("{{ 1 }}\n{% for", "Line 2, column 4: unexpected 'end of template'"),
        ("{% macro f(x) %}\n{{ x }}{% endmacro %}{{ f(1)\n + 1 }}", "Line 3, column 4: can only"),
    ],
)
def test_a_broken_template_is_named_with_its_row_and_column(template, said):
    error = refusal(template)

    assert error.title == "The model's chat template is broken."
    assert error.sentence.startswith(said)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{0.x}'.format(1) }}",
        "{{ '{!r}'.format(1) }}",
        "{{ 'a'.ljust(999999999) }}",
        "{{ (1).to_bytes(999999999, 'big') }}",
        "{{ 'a' | center(999999999) }}",
        "{{ lipsum(999999999) }}",
    ],
)
def test_what_no_chat_template_needs_is_not_there(template):
    assert refusal(template).title == "The model's chat template is broken."


TWO_LOOPS = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
DOUBLING = "{{% set ns = namespace(x={0}, y={0}) %}}{{% for i in range(99) %}}{1}{{% endfor %}}"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (TWO_LOOPS, "too many steps"),
        ("{% for i in range(99999999) %}{% endfor %}", "too large"),
        ("{{ 'a' * 9999999999 }}", "too large"),
        ("{{ 2 ** 99999999 }}", "a number that is too large"),
        ("{{ '%999999999d' % 1 }}", "pads text"),
        ("{{ 'aaaa' | replace('', 'b' * 9999999) }}", "too large"),
        ("{{ ('a' * 9999).replace('', 'b' * 9999) }}", "too large"),
        ("{{ (['a' * 9999] * 9999) | join }}", "too large"),
        ("{{ ('a' * 9999).join([''] * 9999) }}", "too large"),
        ("{{ ('{0}' * 9999).format('a' * 9999) }}", "too large"),
        ("{{ 'a\nb' | indent(99999999) }}", "too large"),
        ("{{ [1] | tojson(indent=99999999) }}", "indents JSON"),
        (DOUBLING.format("'a'", "{% set ns.x = ns.x ~ ns.x %}"), "too large"),
        (DOUBLING.format("['a']", "{% set ns.x = ns.x + ns.x %}"), "too large"),
        (DOUBLING.format("['a']", "{% set ns.x = [ns.x, ns.x] %}"), "too large"),
        (DOUBLING.format("9", "{% set ns.x = ns.x * ns.x %}"), "a number that is too large"),
        (
            DOUBLING.format("1", "{% set ns.x = namespace(a=ns.x, b=ns.x) %}") + "{{ ns.x }}",
            "not text",
        ),
        ("{% for i in range(9999) %}" + "x" * 99_999 + "{% endfor %}", "too much text"),
        (
            "{% for i in range(9999) %}{% set t %}{% for i in range(9999) %}"
            + "x" * 9_999
            + "{% endfor %}{% endset %}{% endfor %}",
            "too much text",
        ),
        (
            "{% set s = 'a' * 999999 %}{% for i in range(999) %}{% set t = s[1:] %}{% endfor %}",
            "too many steps",
        ),
        ("x" * 200_000, "source is too long"),
    ],
)
def test_a_hostile_template_is_stopped(template, said):
    error = refusal(template)

    assert error.title == "The model's chat template was stopped."
    assert said in error.sentence


def test_a_slow_template_is_stopped_by_the_clock():
    ticks = iter(range(1_000_000))
    limits = TemplateLimits(max_ns=1000, clock=lambda: next(ticks))

    assert "takes too long" in refusal(TWO_LOOPS, limits=limits).sentence
    assert next(ticks) == 1002


def test_a_long_chat_is_no_hostile_template():
    messages = [ChatMessage("user", "word " * 200)] * 1000

    prompt = render_chat(CHATML, messages, add_generation_prompt=True)

    assert prompt.count("<|im_start|>user") == 1000
