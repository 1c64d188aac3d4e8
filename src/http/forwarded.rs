//! Client addresses that trusted proxies report in `X-Forwarded-For` or `Forwarded`, and the key under which an address is
//! counted. Pure: decides who sent a request, refuses nothing.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName, header};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Addresses of one request that are read, from the right: proxies that stand one before the other.
const HOPS_MAX: usize = 32;

/// An address as it is counted: IPv4 by itself, IPv6 by its first 64 bits, which one client can choose from freely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ClientKey {
    V4(Ipv4Addr),
    V6(u64),
}

impl From<IpAddr> for ClientKey {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => ClientKey::V4(address),
            IpAddr::V6(address) => ClientKey::V6((u128::from(address) >> 64) as u64),
        }
    }
}

/// The addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    network: IpAddr,
    prefix: u8,
}

/// A range of addresses that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// The text is not an address with an optional prefix.
    #[error("give an address or a range, like 10.0.0.7 or 10.0.0.0/8")]
    Unreadable,
    /// The range holds every address.
    #[error("every address would be trusted, and so every client could choose its own: name the proxies alone")]
    Everything,
    /// The address has bits that the prefix cuts off.
    #[error("the address has bits beyond its prefix: write {network}/{prefix}")]
    BitsBeyondPrefix {
        /// The address without them.
        network: IpAddr,
        /// The prefix.
        prefix: u8,
    },
}

impl FromStr for AddressRange {
    type Err = BadRange;

    fn from_str(text: &str) -> Result<Self, BadRange> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().map_err(|_| BadRange::Unreadable)?;
        let is_plain = |prefix: &str| !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = match prefix {
            None => bits(written),
            Some(prefix) if is_plain(prefix) => prefix.parse().map_err(|_| BadRange::Unreadable)?,
            Some(_) => return Err(BadRange::Unreadable),
        };
        Self::new(written, prefix)
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl AddressRange {
    fn new(written: IpAddr, prefix: u8) -> Result<Self, BadRange> {
        if prefix > bits(written) {
            return Err(BadRange::Unreadable);
        }
        // ::ffff:10.0.0.0/104 is 10.0.0.0/8.
        let (network, prefix) = match written.to_canonical() {
            IpAddr::V4(address) if written.is_ipv6() && prefix >= 96 => (IpAddr::V4(address), prefix - 96),
            _ => (written, prefix),
        };
        if prefix == 0 {
            return Err(BadRange::Everything);
        }
        match masked(network, prefix) {
            same if same == network => Ok(AddressRange { network, prefix }),
            network => Err(BadRange::BitsBeyondPrefix { network, prefix }),
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.network.is_ipv4() && masked(address, self.prefix) == self.network
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

/// The address with nothing but its first bits.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address) & mask(prefix, 32) as u32).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & mask(prefix, 128)).into()),
    }
}

/// As many ones as the prefix says, in front of zeros, in a number of `width` bits.
fn mask(prefix: u8, width: u8) -> u128 {
    let ones = u128::MAX.checked_shl(u32::from(width - prefix)).unwrap_or(0);
    if width == 128 { ones } else { ones & ((1 << width) - 1) }
}

/// Who sends a request, for the limits of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// The other end of the connection, which was counted when it connected.
    Connection,
    /// A client of a trusted proxy; the proxy itself where it does not say which.
    Proxied(ClientKey),
}

/// Proxies whose word on the addresses of their clients is taken.
#[derive(Debug, Default)]
pub(super) struct TrustedProxies<'a>(pub(super) &'a [AddressRange]);

impl TrustedProxies<'_> {
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|range| range.contains(address))
    }

    /// Who sends a request that came from this address.
    ///
    /// A client can write both headers, and a proxy adds to the right of what it was given. So the right-most address that
    /// is not a proxy's counts. Where that is no address, or where the two headers disagree, so that one of them may be the
    /// client's, the request counts as the proxy's own: it evades no limit, and takes nothing from another client.
    pub(super) fn sender(&self, peer: IpAddr, headers: &HeaderMap) -> Sender {
        if !self.contains(peer) {
            return Sender::Connection;
        }
        let [listed, tagged] = [
            self.client(headers, &X_FORWARDED_FOR, address_of),
            self.client(headers, &header::FORWARDED, tagged_address),
        ];
        let client = match (listed, tagged) {
            (Reported::Client(one), Reported::Client(other)) if one == other => Some(one),
            (Reported::Client(client), Reported::Absent) | (Reported::Absent, Reported::Client(client)) => Some(client),
            _ => None,
        };
        Sender::Proxied(client.unwrap_or_else(|| peer.into()))
    }

    fn client(&self, headers: &HeaderMap, name: &HeaderName, address: fn(&str) -> Option<IpAddr>) -> Reported {
        let mut is_there = false;
        let values = headers.get_all(name).iter().rev();
        let hops = values.flat_map(|value| value.to_str().unwrap_or("?").rsplit(','));
        for hop in hops.take(HOPS_MAX) {
            is_there = true;
            match address(hop.trim()) {
                Some(proxy) if self.contains(proxy) => {}
                Some(client) => return Reported::Client(client.into()),
                None => return Reported::Nothing,
            }
        }
        if is_there { Reported::Nothing } else { Reported::Absent }
    }
}

/// What a header says of the client.
enum Reported {
    Absent,
    Client(ClientKey),
    Nothing,
}

/// An address, perhaps with a port, as proxies write it: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn address_of(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()))
}

/// The address of `for=` in one element of `Forwarded`.
fn tagged_address(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    address_of(bare)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(texts: &[&str]) -> Vec<AddressRange> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn key(address: &str) -> ClientKey {
        address.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn addresses_of_one_client_have_one_key() {
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::9"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    }

    #[test]
    fn a_range_holds_its_addresses_in_every_spelling() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.0.0.7", "::ffff:10.0.0.7", "10.0.0.8"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "::ffff:11.0.0.0"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::1", "::1", "127.0.0.1"),
        ] {
            let range: AddressRange = range.parse().unwrap();
            assert!(range.contains(inside.parse().unwrap()), "{range} {inside}");
            assert!(!range.contains(outside.parse().unwrap()), "{range} {outside}");
        }
    }

    #[test]
    fn a_range_that_cannot_be_meant_is_refused() {
        for text in
            ["", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/+8", "::/129", "proxy", "10.0.0.1:80", "10.0.0.0/8/8", "1.2.3"]
        {
            assert_eq!(text.parse::<AddressRange>(), Err(BadRange::Unreadable), "{text}");
        }
        assert_eq!("0.0.0.0/0".parse::<AddressRange>(), Err(BadRange::Everything));
        assert_eq!("::ffff:0.0.0.0/96".parse::<AddressRange>(), Err(BadRange::Everything));
        let cut = "10.1.0.0/8".parse::<AddressRange>().unwrap_err();
        assert!(cut.to_string().ends_with("write 10.0.0.0/8"), "{cut}");
    }

    fn sender(peer: &str, headers: &[(&'static str, &str)]) -> Sender {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        TrustedProxies(&ranges(&["10.0.0.0/8", "127.0.0.1"])).sender(peer.parse().unwrap(), &map)
    }

    #[test]
    fn the_right_most_address_that_is_not_a_proxys_counts() {
        let (list, tags) = ("x-forwarded-for", "forwarded");
        for (headers, client) in [
            (&[(list, "192.0.2.1")][..], "192.0.2.1"),
            (&[(list, "203.0.113.9, 192.0.2.1")], "192.0.2.1"),
            (&[(list, "nonsense, 192.0.2.1, 10.1.1.1,127.0.0.1")], "192.0.2.1"),
            (&[(list, "203.0.113.9"), (list, "192.0.2.1")], "192.0.2.1"),
            (&[(list, "192.0.2.1:4711")], "192.0.2.1"),
            (&[(list, "[2001:db8::1]:4711")], "2001:db8::"),
            (&[(list, "2001:db8::1")], "2001:db8::"),
            (&[(tags, "for=192.0.2.1;proto=https")], "192.0.2.1"),
            (&[(tags, "For=203.0.113.9, by=10.0.0.1; FOR=\"[2001:db8::1]:47\"")], "2001:db8::"),
            (&[(tags, "for=192.0.2.1"), (list, "192.0.2.1")], "192.0.2.1"),
        ] {
            assert_eq!(sender("127.0.0.1", headers), Sender::Proxied(key(client)), "{headers:?}");
        }
    }

    #[test]
    fn what_cannot_be_told_counts_as_the_proxys_own() {
        let (list, tags) = ("x-forwarded-for", "forwarded");
        let many = vec!["10.0.0.1"; HOPS_MAX].join(",");
        for headers in [
            &[][..],
            &[(list, "")],
            &[(list, "192.0.2.1, nonsense")],
            &[(list, "192.0.2.1,")],
            &[(list, "fe80::1%eth0")],
            &[(list, "10.0.0.1")],
            &[(list, &format!("192.0.2.1,{many}"))],
            &[(tags, "for=unknown")],
            &[(tags, "for=_hidden")],
            &[(tags, "proto=https")],
            // One of them is the client's own.
            &[(list, "192.0.2.1"), (tags, "for=192.0.2.2")],
            &[(list, "192.0.2.1"), (tags, "for=unknown")],
        ] {
            assert_eq!(sender("10.0.0.9", headers), Sender::Proxied(key("10.0.0.9")), "{headers:?}");
        }
    }

    #[test]
    fn the_word_of_a_stranger_is_not_taken() {
        assert_eq!(sender("192.0.2.7", &[("x-forwarded-for", "192.0.2.1")]), Sender::Connection);
        assert_eq!(sender("::1", &[("x-forwarded-for", "192.0.2.1")]), Sender::Connection);
    }

    proptest! {
        #![proptest_config(crate::seeds::config("forwarded"))]

        /// Whatever a client writes in front of what the proxy adds, it counts as itself.
        #[test]
        fn a_client_cannot_choose_its_address(forged in "[ -~]{0,40}", real in any::<[u8; 4]>()) {
            let real = Ipv4Addr::from(real);
            prop_assume!(!TrustedProxies(&ranges(&["10.0.0.0/8", "127.0.0.1"])).contains(real.into()));
            let sent = sender("10.0.0.9", &[("x-forwarded-for", &format!("{forged}, {real}"))]);
            prop_assert_eq!(sent, Sender::Proxied(IpAddr::V4(real).into()));
        }

        /// A range holds what has its bits, and is read back as it is written.
        #[test]
        fn a_range_holds_what_has_its_bits(network in any::<u128>(), other in any::<u128>(), prefix in 1..=128_u8, v4 in any::<bool>()) {
            let (width, prefix) = if v4 { (32, prefix.div_ceil(4)) } else { (128, prefix) };
            let address = |number: u128| match v4 {
                true => IpAddr::V4((number as u32).into()),
                false => IpAddr::V6((number | 1 << 127).into()),
            };
            let network = masked(address(network), prefix);
            let range: AddressRange = format!("{network}/{prefix}").parse().unwrap();
            prop_assert_eq!(&range.to_string().parse::<AddressRange>().unwrap(), &range);
            let bits = |address: IpAddr| match address {
                IpAddr::V4(address) => u128::from(u32::from(address)),
                IpAddr::V6(address) => u128::from(address),
            };
            let other = address(other);
            let shared = (bits(network) ^ bits(other)) >> (width - prefix);
            prop_assert_eq!(range.contains(other), shared == 0);
        }
    }
}
