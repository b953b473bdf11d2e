package rest

import (
	"net/http"

	"google.golang.org/protobuf/proto"

	"go.arco.dev/servo/internal/edge/problem"
)

// ReadMessage reads the body of a request that is none of the contract's paths, as strictly
// as theirs. No body is an empty message.
func ReadMessage(w http.ResponseWriter, r *http.Request, message proto.Message) error {
	b, err := readBody(w, r, &route{hasBody: true}, nil)
	if err != nil || b.data == nil {
		return err
	}
	return b.decode(message)
}

// WriteMessage answers with a message, or with anything that has JSON.
func WriteMessage(w http.ResponseWriter, r *http.Request, message any) {
	data, err := newCodec().Marshal(message)
	if err != nil {
		problem.Write(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(data) // who has gone reads nothing
}
