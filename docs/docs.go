// Package docs embeds the pages of this folder that the server shows.
package docs

import _ "embed"

// Errors is the content of errors.md. The server shows a page for each of its codes under /errors.
//
//go:embed errors.md
var Errors string
