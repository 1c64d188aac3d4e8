//! What a workload does, and what it was told while it did it.

use lastword::{Event, List, NewSession, Outcome, RunId, SaveIntent, SaveOptions, Store, StoreError, UserTurn};

use crate::machine::id;

/// One turn as the workload knows it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Turn {
    pub(crate) prompt: String,
    pub(crate) run: String,
    pub(crate) has_begun: bool,
    pub(crate) sent: Vec<String>,
    pub(crate) appended: usize,
    pub(crate) durable: usize,
    pub(crate) has_finished: bool,
}

/// What the workload was told so far.
#[derive(Debug, Default, Clone)]
pub(crate) struct Told {
    pub(crate) created: bool,
    pub(crate) turns: Vec<Turn>,
    pub(crate) deleting: bool,
    pub(crate) deleted: bool,
    /// Titles that were tried, and how many of them were acknowledged.
    pub(crate) titles: Vec<String>,
    pub(crate) titles_saved: usize,
    /// The longest transcript that was acknowledged as cut.
    pub(crate) cut: bool,
    pub(crate) cutting: bool,
}

impl Told {
    pub(crate) fn create(&mut self, store: &Store) -> Result<(), StoreError> {
        store.create(NewSession::titled("title 0").with_id(id()))?;
        self.created = true;
        Ok(())
    }

    /// A whole turn: tokens buffered, every third one durable, then the end.
    pub(crate) fn turn(&mut self, store: &Store, name: &str, tokens: usize) -> Result<(), StoreError> {
        let run = self.begin(store, name)?;
        self.stream(&run, tokens)?;
        self.finish(&run)
    }

    pub(crate) fn begin(&mut self, store: &Store, name: &str) -> Result<lastword::Run, StoreError> {
        let prompt = format!("prompt {name}");
        self.turns.push(Turn { prompt: prompt.clone(), run: name.to_owned(), ..Turn::default() });
        let run = store.begin_run(&id(), UserTurn::text(&prompt).with_run(RunId::parse(name).unwrap()))?;
        self.last().has_begun = true;
        Ok(run)
    }

    pub(crate) fn stream(&mut self, run: &lastword::Run, tokens: usize) -> Result<(), StoreError> {
        for number in 1..=tokens {
            let text = format!("{}é{number} ", run.id());
            self.last().sent.push(text.clone());
            if number % 3 == 0 {
                run.append_durable(Event::token(&text))?.wait()?;
                self.last().durable = self.last().sent.len();
            } else {
                run.append(Event::token(&text))?;
            }
            self.last().appended = self.last().sent.len();
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self, run: &lastword::Run) -> Result<(), StoreError> {
        run.finish(Outcome::Completed)?;
        self.last().has_finished = true;
        Ok(())
    }

    pub(crate) fn last(&mut self) -> &mut Turn {
        self.turns.last_mut().expect("a turn has begun")
    }

    pub(crate) fn save_title(&mut self, store: &Store, number: usize) -> Result<(), StoreError> {
        let title = format!("title {number}");
        self.titles.push(title.clone());
        store.update(&id(), SaveOptions::default(), |session| session.set_text("title", &title))?;
        self.titles_saved = self.titles.len();
        Ok(())
    }

    pub(crate) fn cut(&mut self, store: &Store) -> Result<(), StoreError> {
        self.cutting = true;
        let options = SaveOptions { intent: SaveIntent::Shrink, ..SaveOptions::default() };
        store.update(&id(), options, |session| session.truncate(List::Messages, 1).expect("a list"))?;
        self.cut = true;
        Ok(())
    }

    pub(crate) fn delete(&mut self, store: &Store) -> Result<(), StoreError> {
        self.deleting = true;
        store.delete(&id())?;
        self.deleted = true;
        Ok(())
    }
}
