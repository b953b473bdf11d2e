// Package subscription defines subscriptions to the event log: their settings and lifecycle, which
// events they match, and the batches that receivers get. It is pure: it reads no clock and no
// database, and makes no calls.
package subscription
