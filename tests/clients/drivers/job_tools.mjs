// The tools that a driver lends to a client which has none of its own, as in job_tools.py.
import { execSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

export const TURNS_MAX = 20;

const FUNCTIONS = {
  read_file: ({ path }) => readFileSync(path, "utf8"),
  edit_file: ({ path, old, new: wanted }) => {
    writeFileSync(path, readFileSync(path, "utf8").replace(old, wanted));
    return "changed";
  },
  run_command: ({ command }) => `${execSync(`${command} 2>&1 || true`, { encoding: "utf8", timeout: 20000 })}`,
};

const describe = (name, description, ...names) => ({
  name,
  description,
  parameters: {
    type: "object",
    properties: Object.fromEntries(names.map((one) => [one, { type: "string" }])),
    required: names,
    additionalProperties: false,
  },
});

export const SCHEMAS = [
  describe("read_file", "Read a text file.", "path"),
  describe("edit_file", "Replace the one place of a text file where `old` stands by `new`.", "path", "old", "new"),
  describe("run_command", "Run a shell command and return what it writes.", "command"),
];

export const call = (name, given) => FUNCTIONS[name](given);

// Run a driver with its task; an error is shown as its client words it.
export async function run(main) {
  try {
    console.log(await main(process.argv[2]));
  } catch (error) {
    console.log(`${error.constructor.name}: ${error.message}`);
    process.exit(1);
  }
}
