//! Enums whose values have words.

/// Declares an enum with a word for each value, the list of all values, and the function that returns the word.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* $vis:vis enum $name:ident, $word:ident { $($(#[$doc:meta])* $value:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis enum $name {
            $($(#[$doc])* $value,)*
        }

        impl $name {
            /// All values, in this order.
            pub const ALL: [$name; [$($text),*].len()] = [$($name::$value),*];

            /// Returns the word.
            pub const fn $word(self) -> &'static str {
                match self { $($name::$value => $text,)* }
            }
        }
    };
}
