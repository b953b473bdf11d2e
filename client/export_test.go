package client

import "time"

// WithSilencePatience sets how long a server may take to answer a probe and to acknowledge a claim.
func WithSilencePatience(o Options, patience time.Duration) Options {
	o.silencePatience = patience
	return o
}
