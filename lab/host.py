"""What figures were measured on. No torch."""

from stride.utils.provenance import processor as processor
