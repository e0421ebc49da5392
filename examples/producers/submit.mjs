#!/usr/bin/env node
// Hands work to an agent and prints the outcome: node submit.mjs @shout hello [ROOT]
import { randomUUID } from "node:crypto";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const [agent, text, root = "."] = process.argv.slice(2);
const place = (state, name) => join(root, "handoffs", state, name);
const name = `node-${randomUUID()}.json`;
const request = { target: { agent_id: agent }, input: { data: { text } } };

// Written under a name that the daemon leaves alone, then shown to it whole.
writeFileSync(place("pending", `.${name}.tmp`), JSON.stringify(request));
renameSync(place("pending", `.${name}.tmp`), place("pending", name));

// The folder that the record stands in is its state.
const ended = () => ["completed", "failed"].find((state) => existsSync(place(state, name)));
while (!ended()) await sleep(200);
console.log(readFileSync(place(ended(), name), "utf8"));
process.exitCode = ended() === "failed" ? 1 : 0;
