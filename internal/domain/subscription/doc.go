// Package subscription is who hears of events: the settings of a subscription, its life as
// events of its own, which events it asks for, and what its receiver is sent. It is pure: it
// reads no clock and no database, and calls nobody.
package subscription
