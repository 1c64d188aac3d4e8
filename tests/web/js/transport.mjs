// The transport that the server hands out: checked as strictly as TypeScript can, and built.

import assert from 'node:assert/strict';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import ts from 'typescript';
import { base } from './harness.mjs';

const PACKAGES = fileURLToPath(new URL('node_modules', import.meta.url));

const OPTIONS = {
  strict: true,
  exactOptionalPropertyTypes: true,
  isolatedModules: true,
  noEmit: true,
  noImplicitOverride: true,
  noUncheckedIndexedAccess: true,
  noUnusedLocals: true,
  noUnusedParameters: true,
  skipLibCheck: true,
  verbatimModuleSyntax: true,
  lib: ['lib.es2022.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'],
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  target: ts.ScriptTarget.ES2022,
  types: [],
};

async function servedFile() {
  const response = await fetch(`${base}/client/chat-transport.ts`);
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('content-type'), 'text/plain; charset=utf-8');
  const text = await response.text();
  const folder = await mkdtemp(join(tmpdir(), 'lastword-transport-'));
  const path = join(folder, 'chat-transport.ts');
  await writeFile(path, text);
  return { folder, path, text };
}

/** Checks the file against the types of a version of `ai`. */
export async function checkTypes(version) {
  const { path } = await servedFile();
  const types = join(PACKAGES, `ai-${version}`);
  const program = ts.createProgram([path], { ...OPTIONS, paths: { ai: [types] } });
  const complaints = ts.getPreEmitDiagnostics(program).map((found) => ts.flattenDiagnosticMessageText(found.messageText, '\n'));
  assert.deepEqual(complaints, []);
  assert(program.getSourceFiles().some((file) => file.fileName.startsWith(types)), 'the types of the package were read');
}

/** The file's module. */
export async function loadTransport() {
  const { folder, text } = await servedFile();
  const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022, verbatimModuleSyntax: true };
  const path = join(folder, 'chat-transport.mjs');
  await writeFile(path, ts.transpileModule(text, { compilerOptions }).outputText);
  return import(pathToFileURL(path).href);
}
