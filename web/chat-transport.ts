// The AI SDK's chat transport for Lastword, for `ai` 6 and 7. One file without dependencies: copy it into your project, or
// fetch it from your server at /client/chat-transport.ts.
//
//   const transport = new LastwordChatTransport({ api: 'http://127.0.0.1:4437/api/chat', body: { runner: 'default' } });
//   const messages = await transport.loadMessages(id);
//   const chat = useChat({ id, messages, resume: true, transport });
//
// What it does that DefaultChatTransport does not: it sends only the last message, because the server has the others;
// `stop()` stops the run on the server and not only the connection; a stream that was cut resumes the same run, also when
// that has ended since; and it loads the history.

import type { ChatRequestOptions, ChatTransport, UIMessage, UIMessageChunk } from 'ai';

type Resolvable<T> = T | PromiseLike<T> | (() => T | PromiseLike<T>);

export interface LastwordChatTransportOptions {
  /** Where the chat is served: `/api/chat` at the page's own origin unless said. The server's address alone will do, with
   * its base path if it has one: `https://example.org/chat`. */
  api?: string;
  /** A token of the server. It is sent as `Authorization: Bearer`. */
  token?: Resolvable<string | undefined>;
  /** Headers of every request. */
  headers?: Resolvable<Record<string, string> | Headers | undefined>;
  /** Whether cookies are sent, as `fetch` takes it. */
  credentials?: Resolvable<RequestCredentials | undefined>;
  /** More keys of the body: `{ runner: 'name' }`. */
  body?: Resolvable<object | undefined>;
  /** Another `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** Whether an abort stops the run. `useChat` of `ai` 7 also aborts when its component goes away. Default: true. */
  stopOnAbort?: boolean;
  /** Called when a run could not be stopped. */
  onStopError?: (error: unknown) => void;
}

export interface LoadMessagesOptions {
  /** Only messages before the one with this id. */
  before?: string;
  /** At most this many, the last ones. */
  limit?: number;
  signal?: AbortSignal;
}

/** What the server says when it refuses a request. `code` is for programs and stays. */
export class LastwordChatError extends Error {
  override readonly name = 'LastwordChatError';
  readonly status: number;
  readonly code: string | undefined;

  constructor(message: string, status: number, code: string | undefined) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const RUN_HEADER = 'Lastword-Run';
const LIVE_RUN_HEADER = 'Lastword-Live-Run';
const ERROR_HEADER = 'Lastword-Error';
const CHAT_PATH = '/api/chat';
/** The path of a file of the server, after its base path. */
const FILE_PATH = /^(?:\/[^/?#]+)*?(\/v1\/sessions\/[^/?#]+\/attachments\/[^/?#]+)$/;

const STOP_ATTEMPTS_MAX = 3;
const STOP_PAUSE_MS = 500;
/** How long an aborted request is waited for in the background: until its answer says which run is to be stopped. */
const STOP_WAIT_MS = 60_000;

export class LastwordChatTransport<UI_MESSAGE extends UIMessage = UIMessage> implements ChatTransport<UI_MESSAGE> {
  /** The server streams an answer from its start. */
  readonly resumeStreamIsReplay = true;

  readonly #base: string;
  readonly #options: LastwordChatTransportOptions;
  /** The run of each chat that this client has not seen to its end. */
  readonly #unfinished = new Map<string, string>();
  /** The number of each chat's last resume. */
  readonly #requests = new Map<string, number>();
  /** The stops of each chat that the server has not answered yet. */
  readonly #stops = new Map<string, Promise<void>>();

  constructor(options: LastwordChatTransportOptions = {}) {
    const api = (options.api ?? CHAT_PATH).replace(/\/+$/, '');
    this.#base = api.endsWith(CHAT_PATH) ? api.slice(0, -CHAT_PATH.length) : api;
    this.#options = options;
  }

  /** Sends the last message, and streams its answer. */
  async sendMessages(options: Parameters<ChatTransport<UI_MESSAGE>['sendMessages']>[0]): Promise<ReadableStream<UIMessageChunk>> {
    const { chatId, trigger, messageId, messages, abortSignal } = options;
    this.#unfinished.delete(chatId);
    const send = async (signal: AbortSignal) => {
      // A message that follows a stop at once is not to find the stopped run still there.
      await this.#stops.get(chatId);
      if (abortSignal?.aborted) throw aborted();
      const own = await resolve(this.#options.body);
      const body = { ...own, ...options.body, id: chatId, messages: messages.slice(-1), trigger, messageId };
      return this.#fetch(CHAT_PATH, { method: 'POST', body: JSON.stringify(body), signal }, options);
    };
    const response = await this.#answer(chatId, abortSignal, send, async () => true);
    return this.#stream(chatId, response, abortSignal, async () => true);
  }

  /** Streams the answer that is being given, from its start; null if there is none. */
  async reconnectToStream(options: Parameters<ChatTransport<UI_MESSAGE>['reconnectToStream']>[0]): Promise<ReadableStream<UIMessageChunk> | null> {
    const { chatId, abortSignal } = options;
    const request = this.#nextRequest(chatId);
    // The SDK also aborts a request that another one takes the place of, which it sends at once: that is not a stop.
    const isStopped = async () => {
      await pause(0);
      return this.#requests.get(chatId) === request;
    };
    const send = async (signal: AbortSignal) => {
      await this.#stops.get(chatId);
      const run = this.#unfinished.get(chatId);
      const path = `${CHAT_PATH}/${encodeURIComponent(chatId)}/stream`;
      const ofRun = run === undefined ? undefined : await this.#fetch(`${path}?run=${encodeURIComponent(run)}`, { signal }, options);
      if (ofRun !== undefined && ofRun.status !== 404) return ofRun;
      // The server does not know that run any more, or none was left unfinished.
      await ofRun?.body?.cancel();
      this.#unfinished.delete(chatId);
      return this.#fetch(path, { signal }, options);
    };
    const response = await this.#answer(chatId, abortSignal, send, isStopped);
    return response.status === 204 ? null : this.#stream(chatId, response, abortSignal, isStopped);
  }

  /** The chat's messages, the oldest first; none if the server does not know the chat. An answer that is being given is
   * not among them: `reconnectToStream`, which `resume: true` calls, streams it. */
  async loadMessages(chatId: string, { before, limit, signal }: LoadMessagesOptions = {}): Promise<UI_MESSAGE[]> {
    const query = new URLSearchParams();
    if (before !== undefined) query.set('before', before);
    if (limit !== undefined) query.set('limit', String(limit));
    const path = `${CHAT_PATH}/${encodeURIComponent(chatId)}/messages${query.size > 0 ? `?${query}` : ''}`;
    const response = await this.#fetch(path, { signal: signal ?? null }, {});
    if (response.status === 404) return [];
    await refuse(response);
    const live = response.headers.get(LIVE_RUN_HEADER);
    if (live !== null) this.#unfinished.set(chatId, live);
    else if (before === undefined) this.#unfinished.delete(chatId);
    const messages = (await response.json()) as UI_MESSAGE[];
    for (const part of messages.flatMap((message) => message.parts)) this.#complete(part);
    return messages;
  }

  /** Stops a run. What it has said is kept. */
  async stop(chatId: string, run: string): Promise<void> {
    const path = `/v1/sessions/${encodeURIComponent(chatId)}/runs/${encodeURIComponent(run)}/stop`;
    for (let attempt = 1; ; attempt += 1) {
      const response = await this.#fetch(path, { method: 'POST', keepalive: true }, {}).catch((error: unknown) => {
        if (attempt >= STOP_ATTEMPTS_MAX) throw error;
      });
      const isLast = attempt >= STOP_ATTEMPTS_MAX || (response !== undefined && response.status < 500);
      if (response !== undefined && isLast) return refuse(response);
      await pause(STOP_PAUSE_MS);
    }
  }

  #nextRequest(chatId: string): number {
    const request = (this.#requests.get(chatId) ?? 0) + 1;
    this.#requests.set(chatId, request);
    return request;
  }

  async #fetch(path: string, init: RequestInit, options: ChatRequestOptions): Promise<Response> {
    const headers = new Headers(await resolve(this.#options.headers));
    new Headers(options.headers).forEach((value, name) => headers.set(name, value));
    const token = await resolve(this.#options.token);
    if (token !== undefined && !headers.has('authorization')) headers.set('authorization', `Bearer ${token}`);
    if (init.body !== undefined) headers.set('content-type', 'application/json');
    const credentials = await resolve(this.#options.credentials);
    const send = this.#options.fetch ?? globalThis.fetch;
    return send(this.#base + path, { ...init, headers, ...(credentials === undefined ? {} : { credentials }) });
  }

  /** The answer to a request. An abort before it is there is an abort at once; the run is stopped once it is known. */
  async #answer(
    chatId: string,
    abortSignal: AbortSignal | undefined,
    send: (signal: AbortSignal) => Promise<Response>,
    isStopped: () => Promise<boolean>,
  ): Promise<Response> {
    if (abortSignal?.aborted) throw aborted();
    const connection = new AbortController();
    const answer = send(connection.signal);
    let abort = () => {};
    const abortion = new Promise<never>((_, reject) => {
      abort = () => {
        reject(aborted());
        this.#noteStop(chatId, this.#stopLater(chatId, answer, connection, isStopped));
      };
      abortSignal?.addEventListener('abort', abort, { once: true });
    });
    try {
      const response = await Promise.race([answer, abortion]);
      await refuse(response);
      return response;
    } finally {
      abortSignal?.removeEventListener('abort', abort);
    }
  }

  async #stopLater(chatId: string, answer: Promise<Response>, connection: AbortController, isStopped: () => Promise<boolean>): Promise<void> {
    const isWanted = await isStopped();
    const timer = setTimeout(() => connection.abort(), isWanted ? STOP_WAIT_MS : 0);
    try {
      const response = await answer;
      const run = response.ok ? await runOf(response) : undefined;
      if (isWanted && run !== undefined) await this.#stopAborted(chatId, run);
    } catch {
      // There is no answer, and so nothing that could be stopped.
    } finally {
      clearTimeout(timer);
      connection.abort();
    }
  }

  #noteStop(chatId: string, stop: Promise<void>): void {
    const all = Promise.allSettled([this.#stops.get(chatId), stop]).then(() => {
      if (this.#stops.get(chatId) === all) this.#stops.delete(chatId);
    });
    this.#stops.set(chatId, all);
  }

  async #stopAborted(chatId: string, run: string): Promise<void> {
    if (this.#options.stopOnAbort === false) return;
    if (this.#unfinished.get(chatId) === run) this.#unfinished.delete(chatId);
    await this.stop(chatId, run).catch((error: unknown) => this.#options.onStopError?.(error));
  }

  /** The chunks of an answer. An abort ends them at once. */
  #stream(chatId: string, response: Response, abortSignal: AbortSignal | undefined, isStopped: () => Promise<boolean>): ReadableStream<UIMessageChunk> {
    if (response.body === null) throw new TypeError('network error: the answer has no body');
    const chunks = readChunks(response.body);
    let run = response.headers.get(RUN_HEADER) ?? undefined;
    let isOver = false;
    let abort = () => {};
    const learn = (chunk: UIMessageChunk) => {
      if (chunk.type === 'start') run ??= chunk.messageId;
      if (run !== undefined) this.#unfinished.set(chatId, run);
    };
    /** Reads on, unseen, until the run is known. */
    const stop = async () => {
      if (await isStopped()) {
        while (run === undefined) {
          const { done, value } = await chunks.next();
          if (done) break;
          learn(value);
        }
        if (run !== undefined) await this.#stopAborted(chatId, run);
      }
      await chunks.return(undefined);
    };
    if (run !== undefined) this.#unfinished.set(chatId, run);
    return new ReadableStream<UIMessageChunk>({
      start: (controller) => {
        abort = () => {
          if (isOver) return;
          isOver = true;
          controller.enqueue({ type: 'abort' });
          controller.close();
          // A connection that breaks now has nothing left to say.
          this.#noteStop(chatId, stop());
        };
        if (abortSignal?.aborted) abort();
        else abortSignal?.addEventListener('abort', abort, { once: true });
      },
      pull: async (controller) => {
        try {
          const { done, value } = await chunks.next();
          if (!done) learn(value);
          if (isOver) return;
          if (!done) return controller.enqueue(this.#complete(value));
          if (this.#unfinished.get(chatId) === run) this.#unfinished.delete(chatId);
          controller.close();
        } catch (error) {
          if (isOver) return;
          controller.error(error);
        }
        isOver = true;
        abortSignal?.removeEventListener('abort', abort);
      },
      cancel: async () => {
        isOver = true;
        abortSignal?.removeEventListener('abort', abort);
        await chunks.return(undefined);
      },
    });
  }

  /** The server gives the addresses of its files without its own, and with its base path if it has one. */
  #complete<PART extends { type: string }>(part: PART): PART {
    const file = part as { type: string; url?: unknown };
    const path = file.type === 'file' && typeof file.url === 'string' ? FILE_PATH.exec(file.url)?.[1] : undefined;
    if (path !== undefined) file.url = this.#base + path;
    return part;
  }
}

/** The run that an answer is of: its header says so, else its first chunk. */
async function runOf(response: Response): Promise<string | undefined> {
  const named = response.headers.get(RUN_HEADER);
  if (named !== null || response.body === null) return named ?? undefined;
  for await (const chunk of readChunks(response.body)) {
    if (chunk.type === 'start') return chunk.messageId;
  }
  return undefined;
}

/** The chunks of a stream of server-sent events, to `[DONE]`. A stream that ends without it was cut. */
async function* readChunks(body: ReadableStream<Uint8Array>): AsyncGenerator<UIMessageChunk, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = '';
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((cause: unknown) => {
        throw new TypeError('network error: the connection to the answer was lost', { cause });
      });
      if (done) throw new TypeError('network error: the answer was cut before its end');
      text += decoder.decode(value, { stream: true });
      const lines = text.split('\n');
      text = lines.pop() ?? '';
      for (const line of lines.filter((line) => line.startsWith('data:'))) {
        const data = line.slice('data:'.length).trim();
        if (data === '[DONE]') return;
        yield JSON.parse(data) as UIMessageChunk;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** The server's message as an error, unless it has none. */
async function refuse(response: Response): Promise<void> {
  if (response.ok) return;
  const text = (await response.text()).trim();
  const code = response.headers.get(ERROR_HEADER) ?? undefined;
  throw new LastwordChatError(messageIn(text) || `the server answered ${response.status}`, response.status, code);
}

/** A body is its message alone, or `{"error":{"message"}}` outside of the chat. */
function messageIn(body: string): string {
  try {
    const message: unknown = (JSON.parse(body) as { error?: { message?: unknown } } | null)?.error?.message;
    return typeof message === 'string' ? message : body;
  } catch {
    return body;
  }
}

async function resolve<T>(value: Resolvable<T>): Promise<T> {
  return typeof value === 'function' ? (value as () => T | PromiseLike<T>)() : value;
}

function aborted(): DOMException {
  return new DOMException('The request was aborted.', 'AbortError');
}

function pause(ms: number): Promise<void> {
  return new Promise((done) => {
    setTimeout(done, ms);
  });
}
