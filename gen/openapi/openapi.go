// Package openapi holds the OpenAPI document that is generated from the contract, as the
// generator writes it. The one that servers answer with is made from it at the REST edge.
// This file is written by hand; the document beside it is not.
package openapi

import _ "embed" // for the document

// JSON is the generated document.
//
//go:embed openapi.json
var JSON []byte
