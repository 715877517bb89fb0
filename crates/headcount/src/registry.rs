//! The list of connectors of one sort, expanded into the enum of the file format (and so its JSON
//! Schema) and the constructor.

/// Expands `Variant(Config)` lines into an externally tagged enum: `queue: { bull: {...} }`.
///
/// Each config type has `problems(&self) -> Vec<(String, String)>` (key and what is wrong) and
/// `open(&self, &Place) -> anyhow::Result<Box<dyn Trait>>`, which does no I/O on the network.
macro_rules! registry {
    (
        $(#[$meta:meta])*
        $name:ident => $trait:ident { $($(#[$doc:meta])* $variant:ident($config:ty),)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "snake_case", deny_unknown_fields)]
        #[allow(clippy::large_enum_variant, reason = "there is one for each group, not millions")]
        pub enum $name {
            $($(#[$doc])* $variant($config),)*
        }

        impl $name {
            /// Everything in it that makes no sense, as (key, what is wrong and what to do).
            pub fn problems(&self) -> Vec<(String, String)> {
                match self { $(Self::$variant(config) => config.problems(),)* }
            }

            /// Its key in the file.
            pub fn kind(&self) -> String {
                let name = match self { $(Self::$variant(_) => stringify!($variant),)* };
                crate::registry::snake_case(name)
            }

            /// Makes the connector.
            ///
            /// # Errors
            /// A file that it needs, a secret's for example, cannot be read.
            pub fn open(&self, place: &crate::config::Place) -> anyhow::Result<Box<dyn $trait>> {
                match self { $(Self::$variant(config) => config.open(place),)* }
            }
        }
    };
}

pub(crate) use registry;

/// `DryRun` as `dry_run`.
pub(crate) fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// What a configuration is told that names something this binary was built without.
pub(crate) fn not_built_in(feature: &str) -> String {
    format!("this headcount was built without it: build it with `--features {feature}`")
}
