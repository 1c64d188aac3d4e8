//! A runner without a model: a pleasant answer in several parts, with a thought and a tool, at an adjustable pace. For
//! trying things out.

use std::time::Duration;

use serde_json::json;

use super::runner::{Failure, Finish, Outlet, Producing, Prompt, Refused, Runner};
use super::sleep::sleep;
use crate::model::Event;

/// Answers without a network.
#[derive(Debug, Clone, Copy)]
pub struct DemoRunner {
    /// The pause between two words.
    pub pace: Duration,
}

impl Default for DemoRunner {
    fn default() -> Self {
        DemoRunner { pace: Duration::from_millis(40) }
    }
}

/// How many words a tool takes.
const TOOL_WORDS: u32 = 12;

const TOOL_ID: &str = "demo-1";
const TOOL_NAME: &str = "count_words";

impl Runner for DemoRunner {
    fn produce(&self, prompt: Prompt, outlet: Outlet) -> Producing {
        let runner = *self;
        Box::pin(async move { outlet.unless_stopped(runner.answer(&prompt, &outlet)).await? })
    }

    fn kind(&self) -> &str {
        "demo"
    }
}

impl DemoRunner {
    async fn answer(self, prompt: &Prompt, outlet: &Outlet) -> Result<Finish, Failure> {
        let turns = prompt.context.messages.len().div_ceil(2);
        self.say(outlet, Event::reasoning, &thought(turns)).await?;
        self.say(outlet, Event::token, "Good question! Let me have a look.\n\n").await?;
        let words = self.count_words(outlet, &prompt.message).await?;
        self.say(outlet, Event::token, &answer(&prompt.message, words)).await?;
        Ok(Finish::done())
    }

    /// Says a text word by word.
    async fn say(self, outlet: &Outlet, event: fn(&str) -> Event, text: &str) -> Result<(), Refused> {
        for word in text.split_inclusive([' ', '\n']) {
            outlet.say(event(word)).await?;
            sleep(self.pace).await;
        }
        Ok(())
    }

    /// The tool: it does what it says.
    async fn count_words(self, outlet: &Outlet, message: &str) -> Result<usize, Refused> {
        let words = message.split_whitespace().count();
        let preview = format!("count the words of {:?}", shortened(message));
        outlet.say(Event::tool(TOOL_ID, TOOL_NAME, &json!({ "text": message })).with_preview(&preview)).await?;
        sleep(self.pace * TOOL_WORDS).await;
        outlet.say(tool_answer(words)).await?;
        Ok(words)
    }
}

fn tool_answer(words: usize) -> Event {
    Event::tool_complete(TOOL_ID, TOOL_NAME, &json!({ "words": words }), false).with_preview(&format!("{words} words"))
}

fn thought(turns: usize) -> String {
    format!(
        "This is turn {turns} of the conversation. There is no model here, only a demonstration, so I shall count words \
         and be friendly. "
    )
}

fn answer(message: &str, words: usize) -> String {
    let (message, words) =
        (shortened(message), if words == 1 { "one word".to_owned() } else { format!("{words} words") });
    format!(
        "You said {message:?}, which is {words}.\n\nEvery word that you see here was written to the run journal before \
         it was shown to you:\n\n1. Kill this program in the middle of a sentence, and show the session: nothing that you \
         saw is missing.\n2. Stop the answer, and what had arrived is kept.\n3. Let it finish, and it is folded into the \
         transcript, once.\n\nNow connect a model or an agent of your own: a command, or any endpoint that speaks \
         OpenAI's chat protocol. The last word is yours."
    )
}

fn shortened(message: &str) -> String {
    const CHARS_MAX: usize = 60;
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}\u{2026}", &line[..end]),
        None => line,
    }
}
