//! Tables of commands: one for each protocol. Its parser, the rules of access, the manual and the tests read it.

/// Right to a kind of requests, which rules of access give: its index among the rights of its service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verb(pub u8);

impl Verb {
    /// Returns its bit in a set of rights.
    pub const fn bit(self) -> u32 {
        1 << self.0
    }
}

/// Command of a protocol: one row of its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// Word on the wire, or name of an opcode.
    pub word: &'static str,
    /// Arguments: `<x>` stands for a value, `[x]` may be left out, `...` repeats.
    pub arguments: &'static str,
    /// Right that it needs. `None`: no right, as it only releases something or concerns its own connection.
    pub verb: Option<Verb>,
    /// One sentence for people, which begins with a verb.
    pub help: &'static str,
}

/// Declares the commands of a protocol: an enum and its table. A fifth value in a row has the type in the heading.
#[macro_export]
macro_rules! commands {
    ($(#[$doc:meta])* $name:ident, $traits:ident: $type:ty {
        $($command:ident = $word:literal, $arguments:literal, $verb:expr, $help:literal, $trait:expr;)*
    }) => {
        $crate::commands! {
            $(#[$doc])*
            $name { $($command = $word, $arguments, $verb, $help;)* }
        }

        impl $name {
            /// Returns the last value of its row.
            pub fn $traits(self) -> $type {
                match self {
                    $($name::$command => $trait,)*
                }
            }
        }
    };
    ($(#[$doc:meta])* $name:ident {
        $($command:ident = $word:literal, $arguments:literal, $verb:expr, $help:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $(#[doc = concat!("`", $word, " ", $arguments, "`")] $command,)* }

        impl $name {
            /// Every command, in the order of the table.
            pub const ALL: &'static [$name] = &[$($name::$command,)*];
            /// Row of each command, in the same order.
            pub const ROWS: &'static [$crate::command::Command] = &[$($crate::command::Command {
                word: $word,
                arguments: $arguments,
                verb: $verb,
                help: $help,
            },)*];

            /// Returns the command of a word.
            #[inline]
            pub fn of_word(word: &[u8]) -> Option<$name> {
                #[allow(non_upper_case_globals, reason = "they are named after the commands")]
                mod words {
                    $(pub const $command: &[u8] = $word.as_bytes();)*
                }
                match word {
                    $(words::$command => Some($name::$command),)*
                    _ => None,
                }
            }

            /// Returns its row.
            pub fn row(self) -> &'static $crate::command::Command {
                &$name::ROWS[self as usize]
            }
        }
    };
}
pub use commands;
