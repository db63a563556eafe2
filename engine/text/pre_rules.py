"""Which BPE vocabulary cuts text how: the rule by the name in "tokenizer.ggml.pre".

Facts from llama-vocab.cpp and unicode.cpp. Where llama.cpp cuts otherwise than the pattern that
came with a model says, it is llama.cpp that is followed: it makes no difference between upper and
lower case outside ASCII, and no white space outside ASCII lies in a range of characters.
"""

from __future__ import annotations

from engine.text.pretokenize import Form, PreTokenizer


def _ranges(listed: str) -> str:
    """Inside of a character class: "41-5A B5" are hexadecimal code points."""
    return "".join(
        "-".join(rf"\U{int(end, 16):08X}" for end in ends.split("-")) for ends in listed.split()
    )


# Pieces of patterns.

_CONTRACTIONS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_SPACES = r"\s+(?!\S)|\s+"
_LINES_AND_SPACES = r"\s*[\r\n]+|" + _SPACES
_ONE_LINE_AND_SPACES = r"\s*[\r\n]|" + _SPACES
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKED_LETTERS = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_PATH_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_HALVED_SPACES = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))


def _any_of(*alternatives: str) -> str:
    return "|".join(alternatives)


def _cased(upper: str, lower: str, ending: str) -> str:
    """Words whose lower case follows their upper case."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    return f"{lead}{upper}*{lower}+{ending}|{lead}{upper}+{lower}*{ending}"


_ENDING = f"(?:{_CONTRACTIONS})?"
_UPPER, _LOWER = r"[^\P{L}a-z]", r"[^\P{L}A-Z]"
_UPPER_MARKED, _LOWER_MARKED = r"(?:(?![a-z])[\p{L}\p{M}])", r"(?:(?![A-Z])[\p{L}\p{M}])"

_HAN = _ranges(
    "4E00-9FFF 3400-4DBF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF 2CEB0-2EBEF "
    "F900-FAFF 2F800-2FA1F"
)
_KANA = "3040-309F 30A0-30FF"
_SHORT_HAN = "4E00-9FA5"

# Whole patterns.

_GPT2 = _any_of(
    r"'s|'t|'re|'ve|'m|'ll|'d", r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+", _SPACES
)
_LLAMA3 = _any_of(_CONTRACTIONS, _LETTERS, r"\p{N}{1,3}", _SIGNS, _LINES_AND_SPACES)
_JAIS2 = _any_of(
    *(_CONTRACTIONS, _LETTERS, r"\p{N}{1,3}", _SIGNS, r"\s*[\r\n]+"),
    *(_HALVED_SPACES, r"\s{1,2}(?!\S)", r"\s"),
)
_QWEN2 = _any_of(_CONTRACTIONS, _LETTERS, r"\p{N}", _SIGNS, _LINES_AND_SPACES)
_QWEN35 = _any_of(
    *(_CONTRACTIONS, _MARKED_LETTERS, r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"),
    _LINES_AND_SPACES,
)
_UFAKZEKA = _any_of(_LETTERS, r"\p{N}", _SIGNS, _LINES_AND_SPACES)
_MINICPM5 = _any_of(_CONTRACTIONS, _LETTERS, r"\p{N}+", _SIGNS, _LINES_AND_SPACES)
_SEED_CODER = _any_of(
    _CONTRACTIONS, _LETTERS, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", _LINES_AND_SPACES
)
_BAILING = _any_of(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])", _LETTERS, r"\p{N}", _SIGNS, _ONE_LINE_AND_SPACES
)
_EXAONE_MOE = _any_of(
    *(_CONTRACTIONS, r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+", r"\p{N}"),
    *(r" ?[^\s\p{L}\p{N}]+[\r\n/]?", _ONE_LINE_AND_SPACES),
)
_GPT4O = _any_of(
    _cased(_UPPER, _LOWER, _ENDING), r"\p{N}{1,3}", _PATH_SIGNS, _LINES_AND_SPACES
)  # fmt: skip
_TEKKEN = _any_of(_cased(_UPPER, _LOWER, ""), r"\p{N}", _PATH_SIGNS, _LINES_AND_SPACES)
_GRANITE_MULTI = _any_of(
    _cased(_UPPER_MARKED, _LOWER_MARKED, _ENDING), r"\p{N}{1,3}", _PATH_SIGNS, _LINES_AND_SPACES
)
_TINY_AYA = _any_of(_MARKED_LETTERS + _ENDING, r"\p{N}{1,3}", _PATH_SIGNS, _LINES_AND_SPACES)
_YOUTU = _any_of(_MARKED_LETTERS + _ENDING, r"\p{N}", _PATH_SIGNS, _LINES_AND_SPACES)
_YOUTU_SCRIPTS = _any_of(
    *(f"[{_ranges('AC00-D7A3 3131-318E')}]+",),
    f"[{_ranges('FF01 2026 201C 201D 2018 2019 2014 FF1A FF1B FF0C 3001-303F FE30-FE4F')}]+",
    *(f"[{_ranges('3105-312F')}]+", f"[{_ranges(f'{_SHORT_HAN} {_KANA}')}]+"),
)
_KIMI = _any_of(
    *(f"[{_HAN}]+", rf"[^\r\n\p{{L}}\p{{N}}]?[^\P{{L}}{_HAN}]+{_ENDING}", r"\p{N}{1,3}"),
    *(_SIGNS, _LINES_AND_SPACES),
)
_NO_PUNCTUATION = r" ?[^(\s|.,!?" + _ranges("2026 3002 FF0C 3001 964 6D4 60C") + r")]+"

_PUNCTUATED_LETTERS = _any_of(
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
)
_DEEPSEEK3 = _any_of(_PUNCTUATED_LETTERS, r" ?[\p{P}\p{S}]+[\r\n]*", _LINES_AND_SPACES)
_SPARK = _any_of(_PUNCTUATED_LETTERS, r" ?[\p{P}\p{S}]+", r"[\r\n]", _SPACES)
_DEEPSEEK3_SCRIPTS = f"[{_ranges(f'{_SHORT_HAN} {_KANA}')}]+"
_DEEPSEEK_SCRIPTS = rf"(?:(?!\s)[{_ranges(f'{_SHORT_HAN} 800-4E00 AC00-D7FF')}])+"
_DEEPSEEK_LETTERS = r"\s?[%s]+" % _ranges(  # noqa: UP031 - braces of the pattern stay readable
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 "
    "388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA "
    "1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 "
    "1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB "
    "1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D "
    "212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 "
    "A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A "
    "FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
_DEEPSEEK_SIGNS = rf"\s?[!-/:-~{_ranges('FF01-FF0F FF1A-FF5E 2018-201F 3001-3002')}]+"
_AFMOE_SCRIPTS = "[{}]+".format(
    _ranges(
        "4E00-9FFF 3400-4DBF 8C48-FAFF 3040-309F 30A0-30FF FF65-FF9F 2F00-2FDF E40-E7F E80-EFF "
        "1780-17FF 1000-109F AA60-AA7F A9E0-A9FF AC00-D7AF 1100-11FF"
    )
)
_THREES_FROM_THE_RIGHT = r"\P{N}*\p{N}{1,3}(?=(?:\p{N}{3})*+(?!\p{N}))"
"""Numbers in groups of three counted from their end; the first group keeps the text before it."""

_LINES = r"[^\n]+|\n+"

_RULES: tuple[tuple[tuple[str, ...], PreTokenizer], ...] = (
    (
        ("default",),
        PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    ),
    (
        (
            *("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "modern-bert", "mpt", "olmo"),
            *("jais", "exaone4", "trillion", "granite-docling", "roberta-bpe", "jina-es"),
            *("jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code"),
        ),
        PreTokenizer((_GPT2,)),
    ),
    (
        (
            *("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"),
            *("minerva-7b", "mellum2"),
        ),
        PreTokenizer((r"\p{N}", _GPT2)),
    ),
    (
        (
            *("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0"),
            *("lfm2", "jina-v5-nano"),
        ),
        PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True),
    ),
    (("dbrx", "smaug-bpe"), PreTokenizer((_LLAMA3,))),
    (("chatglm-bpe",), PreTokenizer((_LLAMA3,), has_bos=False)),
    (("glm4", "glm5"), PreTokenizer((_LLAMA3,), ignore_merges=True, has_bos=False)),
    (("jais-2",), PreTokenizer((_JAIS2,))),
    (
        (
            *("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2"),
            *("hunyuan", "solar-open", "grok-2"),
        ),
        PreTokenizer((_QWEN2,)),
    ),
    (("qwen35",), PreTokenizer((_QWEN35,))),
    (("ufakzeka",), PreTokenizer((_UFAKZEKA,))),
    (("laguna",), PreTokenizer((_LINES, _QWEN2))),
    (("minicpm5",), PreTokenizer((r"\p{N}{1,3}", _MINICPM5), ignore_merges=True)),
    (("seed-coder",), PreTokenizer((_SEED_CODER,))),
    (("bailingmoe", "bailingmoe2", "llada-moe"), PreTokenizer((_BAILING,))),
    (("exaone-moe",), PreTokenizer((_EXAONE_MOE,))),
    (("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), PreTokenizer((_GPT4O,))),
    (("granite-embed-multi-97m",), PreTokenizer((_GRANITE_MULTI,), ignore_merges=True)),
    (("tekken",), PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True)),
    (("tiny_aya", "cohere2moe"), PreTokenizer((_THREES_FROM_THE_RIGHT, _TINY_AYA))),
    (("youtu",), PreTokenizer((_YOUTU_SCRIPTS, _YOUTU), ignore_merges=True)),
    (("kimi-k2",), PreTokenizer((_KIMI,))),
    (
        ("falcon",),
        PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    ),
    (
        ("deepseek-coder",),
        PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_SCRIPTS, r"\p{N}")),
    ),
    (
        ("deepseek-llm",),
        PreTokenizer(
            (
                *(r"[\r\n]", _DEEPSEEK_LETTERS, _DEEPSEEK_SIGNS, r"\s+\Z", _DEEPSEEK_SCRIPTS),
                r"\p{N}+",
            )
        ),
    ),
    (
        ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"),
        PreTokenizer((r"\p{N}{1,3}", _DEEPSEEK3_SCRIPTS, _DEEPSEEK3)),
    ),
    (("spark2_5",), PreTokenizer((r"\p{N}{1,3}", _DEEPSEEK3_SCRIPTS, _SPARK, r"\p{N}"))),
    (("afmoe",), PreTokenizer((_THREES_FROM_THE_RIGHT, _AFMOE_SCRIPTS, _DEEPSEEK3))),
    (("poro-chat", "bloom", "gpt3-finnish"), PreTokenizer((_NO_PUNCTUATION,))),
    (("viking",), PreTokenizer((_NO_PUNCTUATION, r"\p{N}"))),
    (
        ("chameleon",),
        PreTokenizer(
            (
                *("<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", r"\p{N}"),
                *(r"[\p{P}!-/:-@\[-`{-~]", _GPT2),
            ),
            add_bos=True,
        ),
    ),
    (("superbpe",), PreTokenizer((r"\p{N}+", r"(?=(?:[0-9]{3})+(?![0-9]))"))),
    (
        ("gemma4", "granite-embed-multi-311m"),
        PreTokenizer((_LINES,), form=Form.MARKED, whole_newlines=True, always_bos=True),
    ),
    (("sarvam-moe",), PreTokenizer((_LINES,), form=Form.MARKED)),
    (("whitespace",), PreTokenizer((r"\S+",), form=Form.SPACELESS)),
)

PRE_TOKENIZERS = {name: rule for names, rule in _RULES for name in names}
"""Rules by the name in "tokenizer.ggml.pre"."""
