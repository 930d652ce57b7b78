"""A model's own rendering of a call is read back when its tokenizer is loaded."""

import pytest

from deployments.tiers.mlx.loading import call_format
from deployments.tiers.prompt import learn_template
from deployments.tiers.template_check import check_call_template
from deployments.tiers.template_form import AS_WRITTEN
from tests.unit.deployments.tiers.test_prompt import DeafTokenizer, Tokenizer

TURNS = (
    "{%% if tools %%}Tools: {{ tools | tojson }}\n%s{%% endif %%}"
    "{%% for m in messages %%}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{%% for call in m.tool_calls or [] %%}%s{%% endfor %%}<|im_end|>\n{%% endfor %%}"
    "{%% if add_generation_prompt %%}<|im_start|>assistant\n%s{%% endif %%}"
)
NAME, ARGUMENTS = "{{ call.function.name }}", "{{ call.function.arguments | tojson }}"
PAIRS = "{% for k, v in call.function.arguments.items() %}"
WRITTEN = {
    "Hermes": '<tool_call>\n{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}'
    "\n</tool_call>",
    "Mistral": f"[TOOL_CALLS]{NAME}[ARGS]{ARGUMENTS}",
    "Kimi K2": "<|tool_calls_section_begin|><|tool_call_begin|>functions." + NAME + ":0<|tool_call_argument_begin|>"
    f"{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>",
    "GLM": f"<tool_call>{NAME}{PAIRS}<arg_key>{{{{ k }}}}</arg_key><arg_value>{{{{ v }}}}</arg_value>"
    "{% endfor %}</tool_call>",
    "DeepSeek V4": f'<｜DSML｜tool_calls><｜DSML｜invoke name="{NAME}">{PAIRS}<｜DSML｜parameter name="{{{{ k }}}}" '
    'string="{{ "true" if v is string else "false" }}">{{ v }}</｜DSML｜parameter>{% endfor %}</｜DSML｜invoke>'
    "</｜DSML｜tool_calls>",
    "Qwen2": f"✿FUNCTION✿: {NAME}\n✿ARGS✿: {ARGUMENTS}\n✿RESULT✿",
}
UNKNOWN = f"@@{NAME}@@{PAIRS}{{{{ k }}}}~{{{{ v }}}};{{% endfor %}}@@"


def template(call: str, words: str = "", opened: str = "") -> Tokenizer:
    return Tokenizer(TURNS % (words, call, opened))


def test_the_default_model_can_be_read():
    """Law: SmolLM2's own template writes calls that are read."""
    assert check_call_template(Tokenizer()) is None


@pytest.mark.parametrize("family", WRITTEN)
@pytest.mark.parametrize("opened", ["", "<think>\n"])
def test_a_known_form_is_read_back(family, opened):
    """Law: what the table of formats has is no warning, also where the template opens the reasoning in the prompt."""
    assert check_call_template(template(WRITTEN[family], opened=opened)) is None


def test_an_unknown_form_is_said_with_what_it_looks_like():
    """Law: a model whose calls can't be read is told from one that can, with its own words."""
    warning = str(check_call_template(template(UNKNOWN)))
    assert "@@find_train@@city~Bern;seats~2;@@" in warning


def test_a_form_that_only_mlx_lm_reads_is_read():
    """Law: what the tier reads by mlx-lm's parser is no warning either."""

    class Parsed(Tokenizer):
        tool_call_start, tool_call_end = "@@", "@@"

        @staticmethod
        def tool_parser(body: str, _: object) -> dict:
            return {"name": "find_train", "arguments": {"city": "Bern", "seats": 2}}

    one = Parsed(TURNS % ("", "@@find_train of Bern@@", ""))
    assert check_call_template(one, call_format) is None
    assert check_call_template(one) is not None


def test_a_template_without_tools_is_said_as_such():
    """Law: no place for tools is another thing than calls that can't be read."""
    deaf = DeafTokenizer("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert "no place for tools" in str(check_call_template(deaf))


@pytest.mark.parametrize("call", ["", "{{ raise_exception('no calls here') }}"])
def test_a_template_that_shows_no_call_is_judged_by_its_words(call):
    """Law: where none is rendered, what the prompt says of calls counts, also where this server writes them into the
    words of their turn; a template that raises stops nothing."""
    known = check_call_template(template(call, words="Answer as <tool_call>\n{...}\n</tool_call>.\n"))
    unknown = Tokenizer((TURNS % ("", call, "")).replace("tools | tojson", "tools | length"))
    assert known is None
    for form in (AS_WRITTEN, learn_template(unknown)):
        assert "can't be told" in str(check_call_template(unknown, form=form))


@pytest.mark.parametrize("call", [WRITTEN["Mistral"], UNKNOWN])
def test_a_call_is_shown_in_the_form_that_the_template_takes(call):
    """Law: a template that refuses this server's ids is judged by the call that it writes, not by its words."""
    short = "{% if call.id|length != 9 %}{{ raise_exception('length 9') }}{% endif %}"
    tokenizer = template(short + call, words="Answer as <tool_call>\n{...}\n</tool_call>.\n")
    assert (check_call_template(tokenizer, form=learn_template(tokenizer)) is None) == (call is not UNKNOWN)


def test_a_broken_template_is_a_warning():
    """Law: nothing that a template does stops the tier."""
    assert check_call_template(Tokenizer("{% if tools %}{{ nothing.at.all.here }}{% endif %}")) is not None
