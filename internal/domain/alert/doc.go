// Package alert is what somebody must hear of: the conditions that a look at the database has
// found, the alerts that are open because of them, the channels that are told, and what they
// are told. It is pure: it reads no clock and no database, and calls nobody.
package alert
