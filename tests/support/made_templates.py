"""Chat templates made of habits: how a model's maker treats system messages, turns, calls, results and ids. What each
raises or drops is what published templates do; none of their text is here."""

import itertools
from collections.abc import Iterator

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
MARKS = {
    "any": "",
    "refused": "{% if '<|channel|>' in m.content %}{{ raise_exception('marks') }}{% endif %}",
}


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


# Whole habits of single families, as their makers describe them.
FAMILIES = {
    # The system prompt stands in the last turn of the user's; nine signs an id; the model answers a result.
    "Mistral": (
        "{% if messages[0].role == 'system' %}{% set head = messages[0].content %}{% set rest = messages[1:] %}"
        "{% else %}{% set head = '' %}{% set rest = messages %}{% endif %}"
        "{% set last = namespace(user=-1, turn=true) %}"
        "{% for m in rest %}{% if m.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}"
        "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
        "{% if (m.role == 'user') != last.turn %}{{ raise_exception('roles must alternate') }}{% endif %}"
        "{% set last.turn = not last.turn %}{% endif %}{% endfor %}"
        "{% for m in rest %}{% if m.role == 'user' %}"
        "{% if loop.index0 == last.user and head %}{{ '[INST]' + head + '\n\n' + m.content + '[/INST]' }}"
        "{% else %}{{ '[INST]' + m.content + '[/INST]' }}{% endif %}"
        "{% elif m.role == 'tool' %}{% if m.tool_call_id|length != 9 %}{{ raise_exception('length 9') }}{% endif %}"
        "{{ '[TOOL_RESULTS]' + m.content }}"
        "{% elif m.tool_calls %}{% for c in m.tool_calls %}{% if c.id|length != 9 %}{{ raise_exception('length 9') }}"
        "{% endif %}{{ '[TOOL_CALLS]' + c.function.name + (c.function.arguments|tojson) }}{% endfor %}"
        "{% elif m.role == 'assistant' %}{{ m.content }}{% else %}{{ raise_exception('only these roles') }}{% endif %}"
        "{% endfor %}{% if tools %}{{ '[AVAILABLE_TOOLS]' + (tools|length|string) }}{% endif %}"
    ),
    # One call a turn; a call's turn has no other words.
    "Llama 3": (
        "{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls|length != 1 %}"
        "{{ raise_exception('one call at once') }}{% endif %}"
        "{{ '<|python_tag|>' + m.tool_calls[0].function.name + (m.tool_calls[0].function.arguments|tojson) }}"
        "{% else %}{{ '<|' + m.role + '|>' + m.content }}{% endif %}<|eot_id|>{% endfor %}"
        "{% if tools %}tools{% endif %}"
    ),
    # What a model calls isn't in its history; a list in Python's form is what its system prompt names.
    "LFM2": (
        "{% if tools %}{{ 'Write <|tool_call_start|>[f(a=1)]<|tool_call_end|>' }}{% endif %}"
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    ),
    # The first system message is a developer's; later ones are dropped; the marks of channels are refused.
    "Harmony": (
        "{% if messages[0].role == 'system' %}{{ '<|start|>developer<|message|>' + messages[0].content }}{% endif %}"
        "{% for m in messages %}{% if m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content }}"
        "{% elif m.role == 'assistant' %}{% if '<|channel|>' in m.content %}{{ raise_exception('marks') }}{% endif %}"
        "{% if m.tool_calls %}{{ m.content }}{% set c = m.tool_calls[0] %}"
        "{{ 'to=functions.' + c.function.name + (c.function.arguments|tojson) }}{% else %}{{ m.content }}{% endif %}"
        "{% elif m.role == 'tool' %}{{ '<|start|>functions<|message|>' + m.content }}{% endif %}{% endfor %}"
        "{% if tools %}namespace functions{% endif %}"
    ),
}
