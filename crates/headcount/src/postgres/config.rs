//! How to reach a PostgreSQL: what is wrong with the keys, and the login that comes out of them once
//! all files they name are read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use headcount_core::Span;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::tls::Mode;
use crate::clock::duration;
use crate::limits::{CERTIFICATE_BYTES, POSTGRES_TIMEOUTS};
use crate::regular_file;
use crate::secret::{Secret, resolve};

/// What the server is told of us.
const APPLICATION: &str = "headcount";

/// How to reach a PostgreSQL, or a pooler such as PgBouncer in any mode.
#[derive(Clone, PartialEq)]
pub struct PostgresConfig {
    /// `postgres://user:password@host:port/database?sslmode=verify-full`; several hosts as
    /// `host:port,host:port`. Holds a password as a rule.
    pub url: Option<Secret>,
    /// A file with the url.
    pub url_file: Option<PathBuf>,
    /// The password, if it is not in the url.
    pub password: Option<Secret>,
    /// A file with the password.
    pub password_file: Option<PathBuf>,
    /// The authority that signed the server's certificate, PEM; else those of the system.
    pub ca_file: Option<PathBuf>,
    /// Our own certificate, PEM, where the server asks for one.
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM.
    pub key_file: Option<PathBuf>,
    /// How long a connection may take to come up, all hosts together.
    pub connect_timeout: Span,
    /// How long a statement may take; the server ends it then.
    pub statement_timeout: Span,
}

/// A [`PostgresConfig`] with the contents of all files it names. Equal logins share a connection.
#[derive(Clone, PartialEq)]
pub(super) struct Login {
    url: Secret,
    password: Option<Secret>,
    ca: Option<Vec<u8>>,
    /// Certificate and key.
    own: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) connect_timeout: Duration,
    pub(super) statement_timeout: Duration,
}

/// Where one server is, and how to log in there.
pub(super) struct Server {
    /// `host:port`.
    pub(super) place: String,
    pub(super) config: Config,
}

/// A url, taken apart.
struct Url {
    config: Config,
    mode: Option<Mode>,
    root: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            url: None,
            url_file: None,
            password: None,
            password_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            connect_timeout: Span::from_secs(2),
            statement_timeout: Span::from_secs(2),
        }
    }
}

/// The place only: a url may hold a password.
impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresConfig({})", self.url.as_ref().map_or_else(String::new, place))
    }
}

impl PostgresConfig {
    /// Whether a secret comes from a file.
    pub(super) fn has_secret_files(&self) -> bool {
        // A key is renewed in place, as a password is.
        [&self.url_file, &self.password_file, &self.key_file].iter().any(|file| file.is_some())
    }

    /// Everything in it that makes no sense, as (key, what is wrong and what to do).
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, what: String| found.push((key.to_owned(), what));
        let url = self.url.as_ref().filter(|url| !url.expose().is_empty());
        match (url, &self.url_file) {
            (None, None) => {
                say("url", "is missing; write postgres://user@host:port/database".into());
            }
            (Some(_), Some(_)) => say("url_file", "give either url or url_file".into()),
            (Some(url), None) => {
                if let Err((key, what)) = self.understood(url) {
                    say(key, what);
                }
            }
            (None, Some(_)) => {}
        }
        if self.password.is_some() && self.password_file.is_some() {
            say("password_file", "give either password or password_file".into());
        }
        if self.cert_file.is_some() != self.key_file.is_some() {
            say("cert_file", "give cert_file and key_file together".into());
        }
        let shortest = Span::from_millis(10);
        for (key, span) in [
            ("connect_timeout", self.connect_timeout),
            ("statement_timeout", self.statement_timeout),
        ] {
            if span < shortest {
                say(key, "must be at least 10ms".into());
            }
        }
        let sum = self.connect_timeout.saturating_add(self.statement_timeout);
        if duration(sum) > POSTGRES_TIMEOUTS {
            let what = "connect_timeout and statement_timeout may be 4500ms together, for a look \
                        ends after 5 s";
            say("statement_timeout", what.into());
        }
        found
    }

    /// The url, if it fits the other keys.
    fn understood(&self, url: &Secret) -> Result<Url, (&'static str, String)> {
        let url = Url::parse(url.expose()).map_err(|what| ("url", what))?;
        let given = self.password.is_some() || self.password_file.is_some();
        if given && url.config.get_password().is_some() {
            return Err(("password", "is given in url too; keep one of them".into()));
        }
        if self.ca_file.is_some() && url.mode.is_some_and(|mode| mode < Mode::Require) {
            let what = "is not used with this sslmode; write ?sslmode=verify-full in url";
            return Err(("ca_file", what.into()));
        }
        Ok(url)
    }
}

impl Login {
    /// Reads the files that `config` names; relative paths start at `base`.
    pub(super) fn new(config: &PostgresConfig, base: &Path) -> anyhow::Result<Self> {
        let url = resolve(config.url.as_ref(), config.url_file.as_deref(), base)?;
        let url = url.context("no postgres url is given; set `url` or `url_file`")?;
        let taken =
            config.understood(&url).map_err(|(key, what)| anyhow::anyhow!("{key} {what}"))?;
        let read = |ours: &Option<PathBuf>, theirs: Option<PathBuf>| {
            let file = ours.clone().or(theirs);
            file.map(|file| certificate(&base.join(file))).transpose()
        };
        Ok(Self {
            password: resolve(config.password.as_ref(), config.password_file.as_deref(), base)?,
            ca: read(&config.ca_file, taken.root)?,
            own: read(&config.cert_file, taken.cert)?.zip(read(&config.key_file, taken.key)?),
            connect_timeout: duration(config.connect_timeout),
            statement_timeout: duration(config.statement_timeout),
            url,
        })
    }

    /// Where it is, for messages: without user and password.
    pub(super) fn place(&self) -> String {
        place(&self.url)
    }

    /// The authorities that are believed, PEM.
    pub(super) fn ca(&self) -> Option<&[u8]> {
        self.ca.as_deref()
    }

    /// Our own certificate and its key, PEM.
    pub(super) fn own(&self) -> Option<(&[u8], &[u8])> {
        self.own.as_ref().map(|(certificate, key)| (&**certificate, &**key))
    }

    /// With an authority of its own, `require` means `verify-ca`, as in libpq, and no `sslmode` at
    /// all means `verify-full`.
    pub(super) fn mode(&self) -> Mode {
        match (self.taken().mode, self.ca.is_some()) {
            (Some(Mode::Require), true) => Mode::VerifyCa,
            (Some(mode), _) => mode,
            (None, true) => Mode::VerifyFull,
            (None, false) => Mode::Prefer,
        }
    }

    /// All hosts of the url, in its order.
    pub(super) fn servers(&self) -> Vec<Server> {
        let mut all = self.taken().config;
        all.application_name(APPLICATION).ssl_mode(self.mode().ssl_mode());
        if let Some(password) = &self.password {
            all.password(password.expose());
        }
        let count = all.get_hosts().len().max(all.get_hostaddrs().len());
        (0..count).map(|index| Server::of(&all, index)).collect()
    }

    fn taken(&self) -> Url {
        Url::parse(self.url.expose()).expect("it was parsed when the login was made")
    }
}

impl Server {
    /// The server with this number of a configuration with several.
    fn of(all: &Config, index: usize) -> Self {
        let mut config = Config::new();
        let ports = all.get_ports();
        let port = ports.get(index).or_else(|| ports.first()).copied().unwrap_or(5432);
        config.port(port);
        let mut name = String::new();
        match all.get_hosts().get(index) {
            Some(Host::Tcp(host)) => {
                name.clone_from(host);
                config.host(host);
            }
            Some(Host::Unix(path)) => {
                name = path.display().to_string();
                config.host_path(path);
            }
            None => {}
        }
        if let Some(address) = all.get_hostaddrs().get(index) {
            if name.is_empty() {
                name = address.to_string();
            }
            config.hostaddr(*address);
        }
        all.get_user().map(|user| config.user(user));
        all.get_password().map(|password| config.password(password));
        all.get_dbname().map(|name| config.dbname(name));
        all.get_options().map(|options| config.options(options));
        all.get_application_name().map(|name| config.application_name(name));
        config.ssl_mode(all.get_ssl_mode()).ssl_negotiation(all.get_ssl_negotiation());
        config.channel_binding(all.get_channel_binding());
        config.target_session_attrs(all.get_target_session_attrs());
        Self { place: format!("{name}:{port}"), config }
    }
}

impl Url {
    /// Takes apart what the client library does not know: more values of `sslmode`, and the files of
    /// certificates.
    fn parse(url: &str) -> Result<Self, String> {
        let scheme = ["postgres://", "postgresql://"];
        if !scheme.iter().any(|scheme| url.starts_with(scheme)) {
            return Err("is no postgres url; write postgres://user@host:port/database".into());
        }
        let (front, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut rest, mut mode) = (Vec::new(), None);
        let (mut root, mut cert, mut key) = (None, None, None);
        let file = |path: &str| Some(PathBuf::from(path.replace("%2F", "/")));
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", name)) => mode = Some(Mode::named(name)?),
                Some(("sslrootcert", "system")) => {}
                Some(("sslrootcert", path)) => root = file(path),
                Some(("sslcert", path)) => cert = file(path),
                Some(("sslkey", path)) => key = file(path),
                _ => rest.push(pair),
            }
        }
        let known = format!("{front}?{}", rest.join("&"));
        let config: Config = known.trim_end_matches('?').parse().map_err(|error| wrong(&error))?;
        let hosts = config.get_hosts();
        if hosts.is_empty() && config.get_hostaddrs().is_empty() {
            return Err("names no host; write postgres://user@host:port/database".into());
        }
        if hosts.iter().any(|host| matches!(host, Host::Tcp(name) if name.contains('@'))) {
            return Err("has a special character in user or password; write @ as %40, / as %2F, \
                        : as %3A, % as %25"
                .into());
        }
        if cert.is_some() != key.is_some() {
            return Err(
                "names one of sslcert and sslkey; write both, or cert_file and key_file".into()
            );
        }
        Ok(Self { config, mode, root, cert, key })
    }
}

/// What is wrong with a url; the library names options, but no values.
fn wrong(error: &tokio_postgres::Error) -> String {
    let said = std::error::Error::source(error).map_or_else(String::new, ToString::to_string);
    format!("is no postgres url ({said}); write postgres://user@host:port/database")
}

/// Hosts and database of a url, without user and password.
fn place(url: &Secret) -> String {
    let text = url.expose();
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    let text = text.split_once('?').map_or(text, |(front, _)| front);
    text.rsplit_once('@').map_or(text, |(_, place)| place).to_owned()
}

fn certificate(path: &Path) -> anyhow::Result<Vec<u8>> {
    let unreadable = || format!("certificate file {} cannot be read", path.display());
    let bytes = regular_file::read(path, CERTIFICATE_BYTES).with_context(unreadable)?;
    let size = bytes.len() as u64;
    anyhow::ensure!(size <= CERTIFICATE_BYTES, "certificate file {} is too large", path.display());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_url(url: &str) -> PostgresConfig {
        PostgresConfig { url: Some(url.into()), ..PostgresConfig::default() }
    }

    fn keys(config: &PostgresConfig) -> Vec<String> {
        config.problems().into_iter().map(|(key, _)| key).collect()
    }

    fn login(url: &str) -> Login {
        Login::new(&with_url(url), Path::new("/")).unwrap()
    }

    #[test]
    fn urls_of_every_kind() {
        for good in [
            "postgres://windmill@db/windmill",
            "postgresql://u:p%40ss@db:5433/windmill?sslmode=disable",
            "postgres://u@a:1,b:2/windmill?target_session_attrs=read-write",
            "postgres://u@[::1]:5432/windmill?sslmode=verify-full&sslrootcert=ca.pem",
            "postgres://u@%2Frun%2Fpostgresql/windmill",
            "postgres://u@db/windmill?sslmode=verify-ca&sslcert=c.pem&sslkey=%2Frun%2Fk.pem",
        ] {
            assert_eq!(keys(&with_url(good)), [""; 0], "{good}");
        }
        for bad in [
            "",
            "mysql://db/windmill",
            "db:5432",
            "host=db user=u",
            "postgres://u@db:port/windmill",
            "postgres://u@db/windmill?sslmode=maybe",
            "postgres://u@db/windmill?colour=blue",
            "postgres:///windmill",
            "postgres://u@db/windmill?sslcert=c.pem",
            "postgres://u:pa@ss@db/windmill",
        ] {
            assert_eq!(keys(&with_url(bad)), ["url"], "{bad}");
        }
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let config = PostgresConfig {
            url: Some("postgres://u:p@db/windmill".into()),
            url_file: Some("url".into()),
            password: Some("p".into()),
            password_file: Some("password".into()),
            ca_file: None,
            cert_file: Some("cert".into()),
            key_file: None,
            connect_timeout: Span::ZERO,
            statement_timeout: Span::from_secs(60),
        };
        let expected =
            ["url_file", "password_file", "cert_file", "connect_timeout", "statement_timeout"];
        assert_eq!(keys(&config), expected);
        let config =
            PostgresConfig { password: Some("p".into()), ..with_url("postgres://u:p@db/w") };
        assert_eq!(keys(&config), ["password"]);
        let url = "postgres://u@db/w?sslmode=disable";
        let config = PostgresConfig { ca_file: Some("ca".into()), ..with_url(url) };
        assert_eq!(keys(&config), ["ca_file"]);
    }

    #[test]
    fn each_mode_of_tls_is_what_libpq_means_by_it() {
        for (query, alone, with_authority) in [
            ("", Mode::Prefer, Mode::VerifyFull),
            ("?sslmode=disable", Mode::Disable, Mode::Disable),
            ("?sslmode=allow", Mode::Prefer, Mode::Prefer),
            ("?sslmode=prefer", Mode::Prefer, Mode::Prefer),
            ("?sslmode=require", Mode::Require, Mode::VerifyCa),
            ("?sslmode=verify-ca", Mode::VerifyCa, Mode::VerifyCa),
            ("?sslmode=verify-full", Mode::VerifyFull, Mode::VerifyFull),
        ] {
            let mut login = login(&format!("postgres://u@db/w{query}"));
            assert_eq!(login.mode(), alone, "{query}");
            assert_eq!(login.servers()[0].config.get_ssl_mode(), alone.ssl_mode(), "{query}");
            login.ca = Some(Vec::new());
            assert_eq!(login.mode(), with_authority, "{query}");
        }
    }

    #[test]
    fn each_host_is_a_server_of_its_own() {
        let login = login("postgres://u:p@a:1,b:2/w");
        let servers = login.servers();
        let places: Vec<_> = servers.iter().map(|server| server.place.as_str()).collect();
        assert_eq!(places, ["a:1", "b:2"]);
        assert_eq!(login.place(), "a:1,b:2/w");
        let second = &servers[1].config;
        assert_eq!((second.get_user(), second.get_dbname()), (Some("u"), Some("w")));
        assert_eq!(second.get_password(), Some("p".as_bytes()));
        assert_eq!(second.get_application_name(), Some("headcount"));
    }

    #[test]
    fn debug_and_place_hide_the_password() {
        let config = with_url("postgres://u:hush@db:5432/w?sslmode=require");
        assert_eq!(format!("{config:?}"), "PostgresConfig(db:5432/w)");
        let odd = Secret::from("postgres://u:hu@sh@db/w");
        assert_eq!(place(&odd), "db/w");
        let [(_, what)] = &with_url("postgres://u:hu@sh@db/w").problems()[..] else { panic!() };
        assert!(!what.contains("sh@"), "{what}");
    }
}
