//! Places that one client has at the same time: connections and requests of an address, requests of a token, and requests of
//! all read-only tokens together. A place is given back when it is dropped.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

use super::error::ApiError;
use super::forwarded::{ClientKey, Sender, TrustedProxies};
use super::options::ServerOptions;
use super::token::{Access, Caller, TokenId};
use crate::meter::Counter;

/// Places that an address has at the least, unless the options say otherwise.
const ADDRESS_PLACES_MIN: usize = 8;

/// How many of something there are now, by key, up to a bound for each.
#[derive(Debug)]
struct Counts<K> {
    now: Mutex<HashMap<K, usize>>,
    max: usize,
}

impl<K: Copy + Eq + Hash> Counts<K> {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Counts { now: Mutex::default(), max })
    }

    fn take(self: &Arc<Self>, key: K) -> Option<Counted<K>> {
        let mut now = self.now.lock();
        let count = now.entry(key).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Counted { counts: self.clone(), key })
    }
}

/// One of those that are counted under a key.
#[derive(Debug)]
struct Counted<K: Copy + Eq + Hash> {
    counts: Arc<Counts<K>>,
    key: K,
}

impl<K: Copy + Eq + Hash> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut now = self.counts.now.lock();
        let Some(count) = now.get_mut(&self.key) else { return };
        *count -= 1;
        if *count == 0 {
            now.remove(&self.key);
        }
    }
}

/// What requests with a token are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TokenKey {
    Token(TokenId),
    AllReadOnly,
}

/// The other end of a connection. The listener puts it into the extensions of every request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// The places of every client.
#[derive(Debug)]
pub(super) struct ClientPlaces {
    addresses: Arc<Counts<ClientKey>>,
    tokens: Arc<Counts<TokenKey>>,
    /// Connections and requests that were refused because their client has all its places.
    pub(super) refused: Counter,
}

impl ClientPlaces {
    pub(super) fn new(options: &ServerOptions) -> Self {
        let of_address = options.connections_per_address_max;
        let of_address = of_address.unwrap_or_else(|| ADDRESS_PLACES_MIN.max(options.connections_max / 8));
        ClientPlaces {
            addresses: Counts::new(of_address),
            tokens: Counts::new((options.connections_max / 2).max(1)),
            refused: Counter::default(),
        }
    }

    /// A place for a connection, none if its address has all of its places. Loopback addresses and trusted proxies have no
    /// bound of their own.
    pub(super) fn of_connection(&self, peer: IpAddr, proxies: &TrustedProxies<'_>) -> Result<ConnectionPlace, Crowded> {
        if peer.to_canonical().is_loopback() || proxies.contains(peer) {
            return Ok(ConnectionPlace { _counted: None });
        }
        let counted = self.addresses.take(peer.into()).ok_or_else(|| self.crowded(Crowded::Address))?;
        Ok(ConnectionPlace { _counted: Some(counted) })
    }

    /// The places of a request that came through the guard.
    pub(super) fn of_request(&self, request: &Request, proxies: &TrustedProxies<'_>) -> Result<RequestPlaces, Crowded> {
        let mut places = RequestPlaces::default();
        let peer = request.extensions().get::<Peer>();
        if let Some(Sender::Proxied(client)) = peer.map(|peer| proxies.sender(peer.0, request.headers())) {
            let taken = self.addresses.take(client).ok_or_else(|| self.crowded(Crowded::Address))?;
            places.address = Some(taken);
        }
        let caller = request.extensions().get::<Caller>();
        let Some((caller, token)) = caller.and_then(|caller| Some((caller, caller.token?))) else { return Ok(places) };
        let take = |key| self.tokens.take(key).ok_or_else(|| self.crowded(Crowded::Token));
        places.token = Some(take(TokenKey::Token(token))?);
        if caller.access == Access::Read {
            places.read_only = Some(take(TokenKey::AllReadOnly)?);
        }
        Ok(places)
    }

    fn crowded(&self, why: Crowded) -> Crowded {
        self.refused.add(1);
        why
    }
}

/// All the places of a client are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crowded {
    Address,
    Token,
}

impl From<Crowded> for ApiError {
    fn from(why: Crowded) -> Self {
        ApiError::too_many_connections(match why {
            Crowded::Address => "this address has as many connections to the server as one address may have",
            Crowded::Token => "this token, or all that may only read, have as many requests under way as they may have",
        })
    }
}

/// The place of a connection among those of its address.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    _counted: Option<Counted<ClientKey>>,
}

/// The places that a request takes until its answer was sent to its end, or dropped.
#[derive(Debug, Default)]
pub(super) struct RequestPlaces {
    address: Option<Counted<ClientKey>>,
    token: Option<Counted<TokenKey>>,
    read_only: Option<Counted<TokenKey>>,
}

impl RequestPlaces {
    /// Has the answer's body keep the places.
    pub(super) fn kept_by(self, response: Response) -> Response {
        match self.address.is_none() && self.token.is_none() {
            true => response,
            false => response.map(|body| keeping(body, self)),
        }
    }
}

/// Bytes of a frame that a connection may have taken although they were not sent: less is as good as sent.
const FRAME_BYTES_MIN: usize = 64 * 1024;

/// A body that keeps something until it was sent to its end, or its connection ended. A connection takes a frame, lets the body
/// go if that was the last one, and sends the frame in its own time: so a large frame keeps it, too.
pub(super) fn keeping(body: Body, kept: impl Send + Sync + 'static) -> Body {
    Body::new(Keeping { body, kept: Arc::new(kept) })
}

struct Keeping<T> {
    body: Body,
    kept: Arc<T>,
}

/// A large frame, and what it keeps.
struct KeptFrame<T> {
    bytes: Bytes,
    _kept: Arc<T>,
}

impl<T> AsRef<[u8]> for KeptFrame<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: Send + Sync + 'static> Keeping<T> {
    fn kept(&self, bytes: Bytes) -> Bytes {
        match bytes.len() < FRAME_BYTES_MIN {
            true => bytes,
            false => Bytes::from_owner(KeptFrame { bytes, _kept: self.kept.clone() }),
        }
    }
}

impl<T: Send + Sync + 'static> http_body::Body for Keeping<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        polled.map_ok(|frame| frame.map_data(|bytes| self.kept(bytes)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(crate::seeds::config("peers"))]

        /// Whatever comes and goes, each key has at most its places, and nothing is remembered of a key that has none.
        #[test]
        fn places_are_given_and_taken_back(steps in prop::collection::vec((0..4_u8, any::<bool>()), 0..200), max in 1..5_usize) {
            let counts = Counts::new(max);
            let mut held: Vec<Vec<Counted<u8>>> = (0..4).map(|_| Vec::new()).collect();
            for (key, takes) in steps {
                let held = &mut held[usize::from(key)];
                match takes {
                    true => {
                        let place = counts.take(key);
                        prop_assert_eq!(place.is_some(), held.len() < max);
                        held.extend(place);
                    }
                    false => drop(held.pop()),
                }
            }
            let kept = held.iter().filter(|held| !held.is_empty()).count();
            prop_assert_eq!(counts.now.lock().len(), kept);
            drop(held);
            prop_assert!(counts.now.lock().is_empty());
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_its_places_and_loopback_and_proxies_have_no_bound() {
        let options = ServerOptions { connections_max: 64, ..ServerOptions::default() };
        let places = ClientPlaces::new(&options);
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let proxies = TrustedProxies(&trusted);
        let take = |peer: &str| places.of_connection(address(peer), &proxies);
        let held: Vec<_> = (0..8).map(|_| take("192.0.2.1").unwrap()).collect();
        assert_eq!(take("192.0.2.1").err(), Some(Crowded::Address));
        assert_eq!(take("::ffff:192.0.2.1").err(), Some(Crowded::Address));
        let others: Vec<_> = ["192.0.2.2", "2001:db8::1"].map(take).into_iter().collect();
        assert!(others.iter().all(Result::is_ok));
        for free in ["127.0.0.1", "::1", "::ffff:127.0.0.5", "10.9.9.9"] {
            let many: Vec<_> = (0..20).map(|_| take(free)).collect();
            assert!(many.iter().all(Result::is_ok), "{free}");
        }
        drop(held);
        assert!(take("192.0.2.1").is_ok());
        assert_eq!(places.refused.get(), 2);
    }
}
