// Package alert defines alerts: the conditions that raise them, their lifecycle, the channels that
// receive them and the messages. It is pure: it reads no clock and no database, and makes no calls.
package alert
