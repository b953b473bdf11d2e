// Package client is the Go client of Servo's API. It finds a server that answers, repeats calls that
// are safe to repeat, and returns errors with codes. It keeps nothing between calls but its
// connections.
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
// The client repeats a call that a server refused with UNAVAILABLE, or whose connection was lost, if
// that is safe: reads, and changes that the server identifies by an id. Calls that create or delete get
// an idempotency key if they have none, so that a repeat has no second effect. Secrets are returned
// once: if the answer with a secret was lost, the repeat has none, and you must create a new key or
// channel. The context bounds the time of all repeats.
package client
