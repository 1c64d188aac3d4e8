//! An incremental JSON reader: one byte after the other, it says where values and keys begin and end. It keeps the kinds
//! of the open containers and nothing of their contents. Pure.

use crate::limits::JSON_DEPTH_MAX;

/// What a byte was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Part of something that goes on, or between two things.
    Within,
    /// The first byte of a value that lies in `depth` containers.
    Begins {
        depth: usize,
    },
    /// The last byte of such a value.
    Ends {
        depth: usize,
    },
    /// The byte after a number, which ends there. The byte is not read yet.
    EndsBefore {
        depth: usize,
    },
    /// The quotes around a key of an object that lies in `depth` - 1 containers.
    KeyBegins {
        depth: usize,
    },
    KeyEnds {
        depth: usize,
    },
}

/// Why a text is not JSON, or not one that is read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Syntax,
    Utf8,
    TooDeep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Value,
    /// A value, or the end of an empty list.
    FirstItem,
    /// A key, or the end of an empty object.
    FirstKey,
    Key,
    Colon,
    /// A comma, or the end of the container.
    AfterValue,
    Text {
        is_key: bool,
    },
    Escape {
        is_key: bool,
    },
    Hex {
        is_key: bool,
        left: u8,
    },
    Literal {
        rest: &'static [u8],
    },
    Number(Number),
    End,
}

/// How far a number has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

impl Number {
    fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Number::Minus, b'0') => Number::Zero,
            (Number::Minus | Number::Whole, b'0'..=b'9') => Number::Whole,
            (Number::Zero | Number::Whole, b'.') => Number::Point,
            (Number::Point | Number::Fraction, b'0'..=b'9') => Number::Fraction,
            (Number::Zero | Number::Whole | Number::Fraction, b'e' | b'E') => Number::Exponent,
            (Number::Exponent, b'+' | b'-') => Number::Sign,
            (Number::Exponent | Number::Sign | Number::Power, b'0'..=b'9') => Number::Power,
            _ => return None,
        })
    }

    fn is_whole(self) -> bool {
        matches!(self, Number::Zero | Number::Whole | Number::Fraction | Number::Power)
    }
}

/// What the next bytes of a character must be that is longer than one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Utf8 {
    left: u8,
    low: u8,
    high: u8,
}

impl Utf8 {
    fn next(self, byte: u8) -> Option<Self> {
        let after = |left, low, high| Some(Utf8 { left, low, high });
        if self.left > 0 {
            return (self.low..=self.high).contains(&byte).then_some(Utf8 {
                left: self.left - 1,
                low: 0x80,
                high: 0xbf,
            });
        }
        match byte {
            0x00..=0x7f => Some(self),
            0xc2..=0xdf => after(1, 0x80, 0xbf),
            0xe0 => after(2, 0xa0, 0xbf),
            0xed => after(2, 0x80, 0x9f),
            0xe1..=0xef => after(2, 0x80, 0xbf),
            0xf0 => after(3, 0x90, 0xbf),
            0xf1..=0xf3 => after(3, 0x80, 0xbf),
            0xf4 => after(3, 0x80, 0x8f),
            _ => None,
        }
    }
}

/// Where the reader is.
#[derive(Debug)]
pub(super) struct JsonReader {
    state: State,
    utf8: Utf8,
    /// The open containers: whether each is an object.
    open: Vec<bool>,
}

impl JsonReader {
    pub(super) fn new() -> Self {
        JsonReader { state: State::Value, utf8: Utf8::default(), open: Vec::new() }
    }

    /// Whether the text is whole.
    pub(super) fn is_over(&self) -> bool {
        self.state == State::End
    }

    /// How many of these bytes are plain characters of a text: they may be passed over without a step.
    pub(super) fn plain(&self, bytes: &[u8]) -> usize {
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'"' && *byte != b'\\';
        match self.state {
            State::Text { .. } if self.utf8.left == 0 => {
                bytes.iter().position(|byte| !is_plain(byte)).unwrap_or(bytes.len())
            }
            _ => 0,
        }
    }

    /// Reads one byte. After [`Step::EndsBefore`] the same byte is to be read again.
    pub(super) fn step(&mut self, byte: u8) -> Result<Step, Refusal> {
        match self.state {
            State::Text { is_key } => self.in_text(byte, is_key),
            State::Escape { is_key } => self.in_escape(byte, is_key),
            State::Hex { is_key, left } => self.in_hex(byte, is_key, left),
            State::Literal { rest } => self.in_literal(byte, rest),
            State::Number(number) => self.in_number(byte, number),
            _ if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') => Ok(Step::Within),
            State::Value => self.begin(byte),
            State::FirstItem if byte == b']' => self.close(),
            State::FirstItem => self.begin(byte),
            State::FirstKey if byte == b'}' => self.close(),
            State::FirstKey | State::Key if byte == b'"' => {
                self.state = State::Text { is_key: true };
                Ok(Step::KeyBegins { depth: self.open.len() })
            }
            State::Colon if byte == b':' => self.go_on(State::Value),
            State::AfterValue => self.after_value(byte),
            _ => Err(Refusal::Syntax),
        }
    }

    fn go_on(&mut self, state: State) -> Result<Step, Refusal> {
        self.state = state;
        Ok(Step::Within)
    }

    fn begin(&mut self, byte: u8) -> Result<Step, Refusal> {
        let depth = self.open.len();
        self.state = match byte {
            b'"' => State::Text { is_key: false },
            b't' => State::Literal { rest: b"rue" },
            b'f' => State::Literal { rest: b"alse" },
            b'n' => State::Literal { rest: b"ull" },
            b'-' => State::Number(Number::Minus),
            b'0' => State::Number(Number::Zero),
            b'1'..=b'9' => State::Number(Number::Whole),
            b'{' | b'[' if depth == JSON_DEPTH_MAX => return Err(Refusal::TooDeep),
            b'{' | b'[' => {
                self.open.push(byte == b'{');
                if byte == b'{' { State::FirstKey } else { State::FirstItem }
            }
            _ => return Err(Refusal::Syntax),
        };
        Ok(Step::Begins { depth })
    }

    fn after_value(&mut self, byte: u8) -> Result<Step, Refusal> {
        match (byte, self.open.last()) {
            (b',', Some(true)) => self.go_on(State::Key),
            (b',', Some(false)) => self.go_on(State::Value),
            (b'}', Some(true)) | (b']', Some(false)) => self.close(),
            _ => Err(Refusal::Syntax),
        }
    }

    fn close(&mut self) -> Result<Step, Refusal> {
        self.open.pop();
        Ok(Step::Ends { depth: self.value_is_over() })
    }

    /// A value has ended. Gives how many containers it lies in.
    fn value_is_over(&mut self) -> usize {
        self.state = if self.open.is_empty() { State::End } else { State::AfterValue };
        self.open.len()
    }

    fn in_text(&mut self, byte: u8, is_key: bool) -> Result<Step, Refusal> {
        self.utf8 = self.utf8.next(byte).ok_or(Refusal::Utf8)?;
        match byte {
            b'"' if is_key => {
                self.state = State::Colon;
                Ok(Step::KeyEnds { depth: self.open.len() })
            }
            b'"' => Ok(Step::Ends { depth: self.value_is_over() }),
            b'\\' => self.go_on(State::Escape { is_key }),
            0x00..=0x1f => Err(Refusal::Syntax),
            _ => Ok(Step::Within),
        }
    }

    fn in_escape(&mut self, byte: u8, is_key: bool) -> Result<Step, Refusal> {
        match byte {
            b'u' => self.go_on(State::Hex { is_key, left: 4 }),
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.go_on(State::Text { is_key }),
            _ => Err(Refusal::Syntax),
        }
    }

    fn in_hex(&mut self, byte: u8, is_key: bool, left: u8) -> Result<Step, Refusal> {
        match (byte.is_ascii_hexdigit(), left) {
            (false, _) => Err(Refusal::Syntax),
            (true, 1) => self.go_on(State::Text { is_key }),
            (true, _) => self.go_on(State::Hex { is_key, left: left - 1 }),
        }
    }

    fn in_literal(&mut self, byte: u8, rest: &'static [u8]) -> Result<Step, Refusal> {
        match rest.split_first() {
            Some((expected, [])) if *expected == byte => Ok(Step::Ends { depth: self.value_is_over() }),
            Some((expected, rest)) if *expected == byte => self.go_on(State::Literal { rest }),
            _ => Err(Refusal::Syntax),
        }
    }

    fn in_number(&mut self, byte: u8, number: Number) -> Result<Step, Refusal> {
        match number.next(byte) {
            Some(next) => self.go_on(State::Number(next)),
            None if number.is_whole() => Ok(Step::EndsBefore { depth: self.value_is_over() }),
            None => Err(Refusal::Syntax),
        }
    }
}
