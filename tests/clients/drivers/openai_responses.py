"""Do the job with the openai package over Responses: `python openai_responses.py TASK [stream]`."""

# mypy: ignore-errors
from job_tools import SCHEMAS, TURNS_MAX, call, run
from openai import OpenAI

TOOLS = [{"type": "function", "strict": False, **schema} for schema in SCHEMAS]


def main(task: str, stream: str = "") -> str:
    client, items = OpenAI(), [{"role": "user", "content": task}]
    for _ in range(TURNS_MAX):
        response = ask(client, items, bool(stream))
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        for one in calls:
            result = call(one.name, one.arguments)
            items.append({"type": "function_call_output", "call_id": one.call_id, "output": result})
    return "no end"


def ask(client, items, stream):
    if not stream:
        return client.responses.create(model="fast", input=items, tools=TOOLS, store=False)
    with client.responses.stream(model="fast", input=items, tools=TOOLS, store=False) as events:
        for _ in events:
            pass
        return events.get_final_response()


run(main)
