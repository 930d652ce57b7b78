"""Texts that only stand in for a value, and honest ones that look like them: made up, each with its place.

A row is (tool, argument, its schema, value, what the user said). The argument is required; the tool has no other.
"""

from typing import Any

Case = tuple[str, str, dict[str, Any], Any, str]
TEXT: dict[str, Any] = {"type": "string"}


def say(description: str, **more: Any) -> dict[str, Any]:
    """A text argument with this description."""
    return {"type": "string", "description": description, **more}


def declare(case: Case) -> dict[str, Any]:
    """The tool of a case."""
    name, key, schema, *_ = case
    parameters = {"type": "object", "properties": {key: schema}, "required": [key]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def fill(name: str, key: str, schema: dict[str, Any], said: str, values: tuple[str, ...]) -> list[Case]:
    """A case for each of these values."""
    return [(name, key, schema, value, said) for value in values]


HONEST: list[Case] = [
    ("grep", "pattern", say("what to search for"), "TODO", "list every to-do comment"),
    ("grep", "pattern", TEXT, "FIXME", "what is left to repair?"),
    ("grep", "pattern", say("a regular expression"), "string", "where are texts declared?"),
    ("grep", "pattern", TEXT, "<your_api_key>", "is any key in the docs not filled in?"),
    ("grep", "pattern", TEXT, "YOUR_API_KEY", "which files were never filled in?"),
    ("grep_search", "query", TEXT, "string", "find the uses of that type"),
    ("search_code", "query", TEXT, "str", "where is it converted to text?"),
    ("find_files", "glob", TEXT, "path/to/*", "show what the docs name"),
    ("add_column", "type", say("the column's type"), "string", "add a nullable name to users"),
    ("add_column", "data_type", TEXT, "string", "add a nullable name to users"),
    ("add_column", "column", TEXT, "column", "add one for the printed page's third part"),
    ("add_column", "column_name", TEXT, "column_name", "mirror the information schema"),
    ("set_field", "field_type", TEXT, "string", "make the postcode free of format"),
    ("make_schema", "schema", TEXT, '{"type": "string"}', "accept any text"),
    ("make_schema", "schema", {"type": "object"}, {"type": "string", "description": "string"}, "accept any text"),
    ("update_issue", "status", TEXT, "TODO", "put it back to the start"),
    ("update_issue", "status", {"enum": ["TODO", "DONE"]}, "TODO", "put it back to the start"),
    ("update_issue", "status", TEXT, "status", "call the new state like the column"),
    ("update_issue", "label", TEXT, "placeholder", "mark it as one of those texts"),
    ("fetch", "url", say("the page"), "https://example.com", "fetch any page"),
    ("fetch", "url", TEXT, "example.com", "is the network up?"),
    ("fetch", "url", TEXT, "https://www.example.com/", "try one that is always there"),
    ("fetch", "url", {"type": "string", "format": "uri"}, "https://example.org/path/to/page", "the second one"),
    ("send_mail", "to", TEXT, "user@example.com", "send it to the test account"),
    ("write_test", "domain", TEXT, "example.com", "add a test for the host check"),
    ("add_template", "template", TEXT, "<template>", "one element is enough"),
    ("add_template", "name", say("the template's placeholder"), "<name>", "greet people by it"),
    ("add_template", "name", TEXT, "{{name}}", "a letter that greets people"),
    ("add_slot", "customer", TEXT, "{{customer}}", "make a mustache template that greets the customer"),
    ("add_slot", "city", TEXT, "{{{city}}}", "leave a slot for the town, unescaped"),
    ("set_env", "value", TEXT, "<your_api_key>", "write a .env template for new colleagues"),
    ("set_env", "value", TEXT, "YOUR_API_KEY", "make .env with placeholders only"),
    ("write_file", "content", TEXT, "<your name here>", "an empty form, please"),
    ("write_file", "content", TEXT, "TODO", "leave a mark so that I write it later"),
    ("write_file", "content", TEXT, "...", "an empty one will do"),
    ("edit", "new_string", TEXT, "${name}", "interpolate it"),
    ("edit", "old_string", TEXT, "<insert text here>", "the first line goes"),
    ("run", "command", TEXT, "${command}", "run what the variable says"),
    ("run", "command", TEXT, "$build.result", "run what the build has made"),
    ("edit", "new_string", TEXT, "${step.output}", "interpolate what the step has said"),
    ("search", "query", TEXT, "result of the match", "who has won?"),
    ("search", "query", TEXT, "[result from Lima]", "look for what they wrote: [result from Lima]"),
    ("query_dom", "selector", TEXT, "<body>", "what is on the page?"),
    ("query_dom", "tag", TEXT, "<tag>", "the element that is called so"),
    ("query_dom", "element", TEXT, "element", "count them"),
    ("render", "html", TEXT, "<html>", "only the outermost one"),
    ("define_word", "word", TEXT, "word", "what does it mean in linguistics?"),
    ("lookup", "keyword", TEXT, "keyword", "look up the term itself"),
    ("lookup", "term", TEXT, "string", "a thing in physics"),
    ("get_item", "key", TEXT, "key", "read that entry"),
    ("get_item", "name", TEXT, "name", "read that entry"),
    ("call_js", "callback", TEXT, "callback", "pass mine"),
    ("call_js", "process_function", TEXT, "process_function", "pass mine"),
    ("sort", "field", TEXT, "value", "largest first"),
    ("film", "title", TEXT, "Your Name", "the one with the comet"),
    ("film", "title", TEXT, "Insert Coin", "the arcade one"),
    ("book", "title", TEXT, "Title", "the one that is just called Title"),
    ("song", "name", TEXT, "Fill Me In", "play Craig David"),
    ("weather", "city", TEXT, "city", "what is the weather in my city?"),
    ("weather", "city", TEXT, "<city>", "say literally <city> to it"),
    ("weather", "city", say("the place", default="string"), "string", "any"),
    ("weather", "city", say("the place", examples=["your city"]), "your city", "any"),
    ("weather", "city", TEXT, "City of London", "how is it there?"),
    ("weather", "unit", say("the unit", enum=["unit", "string"]), "unit", "any"),
    ("chat", "message", TEXT, "your order has been sent", "tell her"),
    ("chat", "message", TEXT, "Enter your name", "ask for it"),
    ("chat", "text", TEXT, "[link](https://x.org)", "send the link"),
    ("click", "label", TEXT, "Enter your e-mail", "the second box"),
    ("click", "id", TEXT, "insert_row", "add a line to the sheet"),
    ("call", "function", TEXT, "insert_user", "make an account"),
    ("math", "expression", TEXT, "[x]", "its integer part"),
    ("math", "expression", TEXT, "{a, b}", "a set of two"),
    ("open", "path", TEXT, "/home/user/project/string.py", "show it"),
    ("open", "path", TEXT, "src/paths/todo.txt", "show it"),
    ("open", "path", TEXT, "app/[id]/page.tsx", "show the page"),
    ("open", "path", TEXT, "{{cookiecutter.name}}/setup.py", "show the setup"),
    ("open", "path", TEXT, "path/to/it.txt", "open path/to/it.txt"),
    ("log_in", "password", TEXT, "string123", "use string123"),
    ("translate", "text", TEXT, "your", "to German"),
    ("translate", "text", TEXT, "The text to translate", "put The text to translate into French"),
    ("note", "text", say("may be empty"), "...", "dots"),
]

CITY = say("The city to look in")
STANDINS: list[Case] = [
    *fill("search", "query", TEXT, "find the tide tables", (
        "<your_query>", "<YOUR QUERY>", "<your-search-query>", "<query>", "<search_query>",
    )),
    ("search", "query", say("The search query"), "<search query>", "find the tide tables"),
    *fill("search", "query", TEXT, "find the tide tables", (
        "{query}", "{{query}}", "${QUERY}", "[query]", "[your query]", "[insert query here]", "query", "Query",
        "your query", "your_query_here", "YOUR_QUERY", "string", "<string>", "example query", "...",
    )),
    *fill("weather", "city", CITY, "is it raining where he lives?", (
        "<result of previous call>", "<result of find_home>", "[output from find_home]", "{{step1.output}}",
        "${find_home.result}", "{city from step 1}", "<city from previous result>", "$step1.result",
        "result_of_find_home", "OUTPUT_FROM_STEP_1",
    )),
    *fill("weather", "city", CITY, "is it raining?", (
        "The city to look in", "the city to look in.", "<The city to look in>", "city to look in", "<city>",
        "<CITY_NAME>", "<the city>", "[City]", "city_name", "CITY", "[insert city here]", "insert city here",
        "INSERT_CITY_HERE", "<enter your location>", "Enter your city", "[your location]", "{your_city}",
        "placeholder_city", "<placeholder>", "string",
    )),
    *fill("connect", "api_key", TEXT, "show my balance", (
        "<your api key>", "<api_key>", "YOUR_API_KEY", "your-api-key", "your_api_key_here", "API_KEY",
    )),
    *fill("connect", "token", TEXT, "show my balance", (
        "<INSERT TOKEN HERE>", "[REPLACE WITH TOKEN]", "%TOKEN%",
    )),
    *fill("connect", "url", TEXT, "show my balance", (
        "https://<your-domain>/api", "https://your-domain.com/api",
    )),
    *fill("user", "user_id", TEXT, "who am I?", ("<user_id>", "user_id")),
    *fill("user", "userId", TEXT, "who am I?", ("<userId>", "{user_id}")),
    *fill("user", "email", TEXT, "who am I?", ("<user's email>", "your_email@example.com")),
    *fill("read_file", "path", TEXT, "what does the readme say?", (
        "/path/to/file", "path/to/your/file.txt", "C:\\path\\to\\file.txt",
    )),
    *fill("read_file", "file_path", TEXT, "what does the readme say?", (
        "<file path>", "/home/<your_username>/notes.txt",
    )),
    *fill("write_file", "content", TEXT, "write a poem", ("<content>", "<your content here>")),
    ("send", "message", TEXT, "<message>", "say hello to Ann"),
    ("send", "recipients", {"type": "array", "items": TEXT}, ["<your_recipient>"], "say hello to Ann"),
    ("send", "recipient", {"type": "object", "properties": {"address": TEXT}}, {"address": "[your address]"}, "hello"),
    *fill("run", "command", TEXT, "which files are here?", ("<command>", "your_command_here")),
]  # fmt: skip
