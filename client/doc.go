// Package client talks to Servo's API from Go programs: it finds a server that answers,
// repeats what may be repeated, and gives errors that programs can tell apart. It decides
// nothing about runs, and keeps nothing between calls but its connections.
//
//	c, err := client.New(client.Options{Servers: []string{"127.0.0.1:8081"}})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	answer, err := c.Runs().TriggerRun(ctx, &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "daily"})
//	if client.Is(err, client.NotFound) {
//		…
//	}
//
// # Repeats
//
// A call that a server has refused with UNAVAILABLE, or whose connection was cut, is made
// again if a second time does no harm: reads, and changes that the server knows by an id.
// What would be made twice, or be told that it is so already, gets an idempotency key if it has
// none, so that a repeat never has a second effect. Secrets are shown once: where the answer that
// had one was lost, the repeat has none, and the key or channel must be made anew. How long all
// of it may take is the context's to say.
package client
