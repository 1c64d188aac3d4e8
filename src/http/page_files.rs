//! The page's files, and the transport for chat UIs: their paths, types and texts. None of them needs a token.

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const ICON: &str = "image/svg+xml";
/// No browser runs it: it is a source file to be fetched and built into a page.
const SOURCE: &str = "text/plain; charset=utf-8";

/// Each file's path, type and text.
pub(super) const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("../../web/index.html")),
    ("/page.css", STYLE, include_str!("../../web/page.css")),
    ("/page.js", SCRIPT, include_str!("../../web/page.js")),
    ("/compose.js", SCRIPT, include_str!("../../web/compose.js")),
    ("/dom.js", SCRIPT, include_str!("../../web/dom.js")),
    ("/list.js", SCRIPT, include_str!("../../web/list.js")),
    ("/login.js", SCRIPT, include_str!("../../web/login.js")),
    ("/server.js", SCRIPT, include_str!("../../web/server.js")),
    ("/stream.js", SCRIPT, include_str!("../../web/stream.js")),
    ("/transcript.js", SCRIPT, include_str!("../../web/transcript.js")),
    ("/icon.svg", ICON, include_str!("../../web/icon.svg")),
    ("/client/chat-transport.ts", SOURCE, include_str!("../../web/chat-transport.ts")),
];

/// Whether a path is that of a file.
pub(super) fn is_file(path: &str) -> bool {
    FILES.iter().any(|(file, ..)| *file == path)
}

/// First segments of the files' paths.
pub(super) fn first_segments() -> impl Iterator<Item = &'static str> {
    FILES.iter().filter_map(|(path, ..)| path.split('/').nth(1)).filter(|segment| !segment.is_empty())
}
