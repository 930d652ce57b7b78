"""Chat templates made of habits: how a model's maker treats system messages, turns, calls, results and ids. What each
raises or drops is what published templates do; none of their text is here."""

import itertools
from collections.abc import Iterator

from tests.support.family_templates import FAMILY_TEMPLATES

SYSTEMS = {
    "anywhere": "{{ '<s>' + m.content }}",
    "at the head, else it raises": (
        "{% if not loop.first %}{{ raise_exception('head') }}{% endif %}{{ '<s>' + m.content }}"
    ),
    "at the head, else it is dropped": "{% if loop.first %}{{ '<s>' + m.content }}{% endif %}",
    "never, it raises": "{{ raise_exception('no system role') }}",
    "never, it is dropped": "",
}
TURNS = {
    "free": "",
    "in turn": (
        "{% set ns = namespace(user=true) %}{% for m in messages %}"
        "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
        "{% if (m.role == 'user') != ns.user %}{{ raise_exception('roles take turns') }}{% endif %}"
        "{% set ns.user = not ns.user %}{% endif %}{% endfor %}"
    ),
}
CALLS = {
    "all": "{% for c in m.tool_calls or [] %}{{ CALL }}{% endfor %}",
    "the first": "{% for c in (m.tool_calls or [])[:1] %}{{ CALL }}{% endfor %}",
    "one, else it raises": (
        "{% if m.tool_calls and m.tool_calls|length > 1 %}{{ raise_exception('one call') }}{% endif %}"
        "{% for c in m.tool_calls or [] %}{{ CALL }}{% endfor %}"
    ),
    "none": "",
}
_CALL = "'<call>' + c.function.name + (c.function.arguments|tojson)"
RESULTS = {
    "said": "{{ '<r>' + m.content }}",
    "before the model speaks, else it raises": (
        "{% if loop.nextitem is defined and loop.nextitem.role == 'user' %}{{ raise_exception('after a result') }}"
        "{% endif %}{{ '<r>' + m.content }}"
    ),
    "of a call, else it raises": (
        "{% if m.tool_call_id not in known.ids %}{{ raise_exception('no call') }}{% endif %}{{ '<r>' + m.content }}"
    ),
    "never, it raises": "{{ raise_exception('no tool role') }}",
    "never, it is dropped": "",
}
IDS = {
    "any": "",
    "nine": (
        "{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}{{ raise_exception('length 9') }}"
        "{% endif %}{% endfor %}"
    ),
}
MARKS = {"any": "", "refused": "{% if '<|channel|>' in m.content %}{{ raise_exception('marks') }}{% endif %}"}


def make_templates(system: str, turns: str) -> Iterator[tuple[str, str]]:
    """Make each template with these two habits: its name and its text."""
    for n, (calls, results, ids) in enumerate(itertools.product(CALLS, RESULTS, IDS)):
        marks = list(MARKS)[n % len(MARKS)]
        yield (
            f"system {system}; turns {turns}; calls {calls}; results {results}; ids {ids}; marks {marks}",
            "{% if tools %}{{ tools|length }}{% endif %}"
            + TURNS[turns]
            + "{% set known = namespace(ids=[]) %}{% for m in messages %}"
            + "{% for c in m.tool_calls or [] %}{% set known.ids = known.ids + [c.id] %}{% endfor %}"
            + "{% if m.role == 'system' %}"
            + SYSTEMS[system]
            + "{% elif m.role == 'user' %}{{ '<u>' + m.content }}{% elif m.role == 'assistant' %}"
            + MARKS[marks]
            + IDS[ids]
            + "{{ '<a>' + m.content }}"
            + CALLS[calls].replace("CALL", _CALL)
            + "{% elif m.role == 'tool' %}"
            + RESULTS[results]
            + "{% else %}{{ raise_exception('role') }}{% endif %}{% endfor %}"
            + "{% if add_generation_prompt %}{{ '<a>' }}{% endif %}",
        )


# Whole habits of single families; that of gpt-oss also refuses its own marks in an answer.
FAMILIES = {name: FAMILY_TEMPLATES[name] for name in ("Mistral 7B, Nemo", "Llama 3", "LFM2", "gpt-oss")}
FAMILIES["gpt-oss"] = (
    "{% for m in messages if m.role == 'assistant' %}" + MARKS["refused"] + "{% endfor %}" + FAMILIES["gpt-oss"]
)
